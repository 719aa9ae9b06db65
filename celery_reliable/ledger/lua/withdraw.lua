--[[
withdraw: take back a publication whose sending raised. Its object is freed.

Moves     queued | parked -> absent   (the very publication, never claimed, and no call was answered with it)
          held by this task -> free
KEYS.record   task:<id>       HASH
KEYS.due      due             ZSET
KEYS.later    later           ZSET
KEYS.lock     lock:<object>   STRING of the object
ARGV.id
ARGV.epoch
ARGV.object?  whose lock is given; "" for none
Returns   {"withdrawn"} | {"not_withdrawn", state} | {"gone"} | {"other_object", object_key}
          "other_object": the record notes another one than was given, and nothing was changed
Repeated  gone -> withdrawn
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'attempt', 'relied', 'object')
if not found[1] then
  return {'gone'}
end
if found[2] ~= ARGV.epoch or found[3] or found[4] or (found[1] ~= 'queued' and found[1] ~= 'parked') then
  return {'not_withdrawn', found[1]}
end
if found[5] and found[5] ~= ARGV.object then
  return {'other_object', found[5]}
end
redis.call('DEL', KEYS.record)
redis.call('ZREM', KEYS.due, ARGV.id)
redis.call('ZREM', KEYS.later, ARGV.id)
if ARGV.object ~= '' and string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
  redis.call('DEL', KEYS.lock)
end
return {'withdrawn'}
