--[[
begin_run: note a run before its members are published.

KEYS[1]   run    HASH
KEYS[2]   runs   ZSET
ARGV[1]   id
ARGV[2]   name        of the task
ARGV[3]   only        patterns of the workers, as JSON
ARGV[4]   due_in_ms   when to look whether it is over
ARGV[5...] ids of its members
Returns   {"begun_run"}
Cost      O(members)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ':name', ARGV[2], ':only', ARGV[3], ':begun_ms', now_ms)
for i = 5, #ARGV do
  if not redis.call('HGET', KEYS[1], ARGV[i]) then redis.call('HSET', KEYS[1], ARGV[i], '') end
end
redis.call('ZADD', KEYS[2], now_ms + ARGV[4], ARGV[1])
return {'begun_run'}
