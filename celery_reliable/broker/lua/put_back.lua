--[[
put_back: put a popped message back into its list, unless it was filed meanwhile in the unacked hash.

KEYS.unacked   HASH
KEYS.list      LIST
ARGV.tag
ARGV.message
Returns   1, or 0 when it was filed
Cost      O(1)
]]
redis.call('HDEL', KEYS.unacked, '')
if redis.call('HEXISTS', KEYS.unacked, ARGV.tag) == 1 then return 0 end
redis.call('RPUSH', KEYS.list, ARGV.message)
return 1
