--[[
withdraw: take back a publication whose sending raised. Its object is freed.

Moves     queued | parked -> absent   (the very publication, never claimed, and no call was answered with it)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   lock     STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   epoch
ARGV[3]   object   whose lock is given; "" for none
Returns   {"withdrawn"} | {"kept", state} | {"gone"} | {"object", object}
          "object": the record notes another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'attempt', 'relied', 'object')
if not found[1] then
  return {'gone'}
end
if found[2] ~= ARGV[2] or found[3] or found[4] or (found[1] ~= 'queued' and found[1] ~= 'parked') then
  return {'kept', found[1]}
end
if found[5] and found[5] ~= ARGV[3] then
  return {'object', found[5]}
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
if ARGV[3] ~= '' and string.match(redis.call('GET', KEYS[3]) or '', '^%d+:(.*)$') == ARGV[1] then
  redis.call('DEL', KEYS[3])
end
return {'withdrawn'}
