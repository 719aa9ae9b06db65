--[[
strike_off: take an empty unacked hash off the list of unacked hashes.

KEYS.unacked   HASH
KEYS.list      SET
ARGV.name
Returns   1, or 0 when something is in the unacked hash
Cost      O(1)
]]
if redis.call('EXISTS', KEYS.unacked) == 1 then return 0 end
return redis.call('SREM', KEYS.list, ARGV.name)
