--[[
deregister: a worker that holds nothing ends, and its entry is removed.

Moves     alive | dead -> absent   (a worker)
KEYS[1]   worker    HASH
KEYS[2]   workers   ZSET
KEYS[3]   claims    HASH
KEYS[4]   taken     HASH
KEYS[5]   stops     HASH
ARGV[1]   worker    id
ARGV[2]   in_unacked   how many messages its own unacked hash holds at the broker
ARGV[3]   taken_ms  how long to keep what was taken from it, for a process that is still to hear of it
Returns   {"deregistered"} | {"refused", claims}
Cost      O(log N) in workers
]]
local claims = redis.call('HLEN', KEYS[3])
if claims > 0 or tonumber(ARGV[2]) > 0 then
  return {'refused', claims}
end
redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[5])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('PEXPIRE', KEYS[4], ARGV[3])
return {'deregistered'}
