--[[
park: no worker that may run the task is alive. It waits in the ledger for one, without a message.

Moves     queued | parked -> parked
KEYS[1]   record     HASH
KEYS[2]   due        ZSET
KEYS[3]   unplaced   HASH
ARGV[1]   id
ARGV[2]   due_ms      that was seen
ARGV[3]   due_in_ms   when to look again at the latest
ARGV[4]   named       which workers may run it, as JSON
Returns   {"parked", is_new} | {"changed"}
          1: it did not wait for one before
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'waiting_for')
local state = found[1]
if (state ~= 'queued' and state ~= 'parked') or redis.call('ZSCORE', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
local time = redis.call('TIME')
redis.call('HDEL', KEYS[1], 'resends', 'unsent')
redis.call('HSET', KEYS[1], 'state', 'parked', 'waiting_for', 'workers')
redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], ARGV[1])
return {'parked', (state == 'parked' and found[2] == 'workers') and 0 or 1}
