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
          "changed" also to a reader, of what Celery has been told by now
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'since_ms', 'owed')
local reader = found[3]
if found[1] ~= 'dead' or found[2] ~= ARGV.buried_ms or (ARGV.reader ~= '' and not reader) then
  return {'changed'}
end
if ARGV.reader == '' then
  redis.call('HDEL', KEYS.record, 'owed')
  redis.call('ZREM', KEYS.due, ARGV.id)
  return {'announced'}
end
if ARGV.is_over == '1' then
  if reader == ARGV.reader then
    redis.call('HSET', KEYS.record, 'owed', '')
  end
  return {'opened'}
end
local is_sealed = reader ~= '' and reader ~= ARGV.reader
redis.call('HSET', KEYS.record, 'owed', is_sealed and 'sealed' or ARGV.reader)
return {is_sealed and 'sealed' or 'opening'}
