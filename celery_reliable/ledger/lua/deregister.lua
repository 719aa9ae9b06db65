--[[
deregister: a worker that holds nothing ends, and its entry is removed.

Moves     alive | dead -> absent   (a worker)
KEYS.worker            worker:<worker>   HASH
KEYS.workers           workers           ZSET
KEYS.claims            claims:<worker>   HASH
KEYS.taken             taken:<worker>    HASH
KEYS.stops             stops:<worker>    HASH
ARGV.worker            id
ARGV.in_unacked: int   how many messages its own unacked hash holds at the broker
ARGV.taken_ms: int     how long to keep what was taken from it, for a process that is still to hear of it
Returns   {"deregistered"} | {"refused", claims: int}
Cost      O(log N) in workers
]]
local claims = redis.call('HLEN', KEYS.claims)
if claims > 0 or tonumber(ARGV.in_unacked) > 0 then
  return {'refused', claims}
end
redis.call('DEL', KEYS.worker)
redis.call('DEL', KEYS.stops)
redis.call('ZREM', KEYS.workers, ARGV.worker)
redis.call('PEXPIRE', KEYS.taken, ARGV.taken_ms)
return {'deregistered'}
