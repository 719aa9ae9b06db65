--[[
give_back: move one message out of an unacked hash into its queue; nothing happens when it is not there any more.

KEYS[1]   unacked   HASH
KEYS[2]   list   LIST
ARGV[1]   tag
ARGV[2]   command   "RPUSH": before what waits there; "LPUSH": behind it
ARGV[3]   message
Returns   1, or 0 when it was not there
Cost      O(1)
]]
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call(ARGV[2], KEYS[2], ARGV[3])
return 1
