--[[
put_back: put a popped message back into its list, unless it was filed meanwhile in the unacked hash.

KEYS[1]   unacked   HASH
KEYS[2]   list   LIST
ARGV[1]   tag
ARGV[2]   message
Returns   1, or 0 when it was filed
Cost      O(1)
]]
redis.call('HDEL', KEYS[1], '')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[2])
return 1
