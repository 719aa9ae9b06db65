--[[
strike_off: take an empty unacked hash off the list of unacked hashes.

KEYS[1]   unacked    HASH
KEYS[2]   list   SET
ARGV[1]   name
Returns   1, or 0 when something is in the unacked hash
Cost      O(1)
]]
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
return redis.call('SREM', KEYS[2], ARGV[1])
