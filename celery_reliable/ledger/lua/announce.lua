--[[
announce: somebody tells Celery of a burial. What the burial owed (FAILURE stored, errbacks called, chord told) is paid.

Before that, the message of the dead letter may have to be read, which perhaps nobody has opened before. Whoever reads
it may die of it. If that happens, the message is sealed: nobody reads it again.

Moves     dead, owed -> dead
KEYS.record           task:<id>   HASH
KEYS.due              due         ZSET
ARGV.id
ARGV.buried_ms: int   that was seen
ARGV.reader?          names this reading; "": Celery has been told
ARGV.is_over: flag    "1": it was read; else ""
Returns   {"announced"} | {"opening"} | {"opened"} | {"sealed"} | {"changed"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'since_ms', 'read_by', 'sealed')
if found[1] ~= 'dead' or found[2] ~= ARGV.buried_ms then
  return {'changed'}
end
if ARGV.reader == '' then
  redis.call('HDEL', KEYS.record, 'owed')
  redis.call('ZREM', KEYS.due, ARGV.id)
  return {'announced'}
end
if ARGV.is_over == '1' then
  if found[3] == ARGV.reader then
    redis.call('HDEL', KEYS.record, 'read_by')
  end
  return {'opened'}
end
if found[4] or (found[3] and found[3] ~= ARGV.reader) then
  redis.call('HSET', KEYS.record, 'sealed', '1')
  return {'sealed'}
end
redis.call('HSET', KEYS.record, 'read_by', ARGV.reader)
return {'opening'}
