--[[
give_back: move one message out of an unacked hash into its queue; nothing happens when it is not there any more.

KEYS.unacked   HASH
KEYS.list      LIST
ARGV.tag
ARGV.command   "RPUSH": before what waits there; "LPUSH": behind it
ARGV.message
Returns   1, or 0 when it was not there
Cost      O(1)
]]
if redis.call('HDEL', KEYS.unacked, ARGV.tag) == 0 then return 0 end
redis.call(ARGV.command, KEYS.list, ARGV.message)
return 1
