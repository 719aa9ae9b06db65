--[[
strike_off: take an empty room off the list of rooms.

KEYS[1]   room    HASH
KEYS[2]   rooms   SET
ARGV[1]   name
Returns   1, or 0 when something is in the room
Cost      O(1)
]]
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
return redis.call('SREM', KEYS[2], ARGV[1])
