--[[
park: no worker that may run the task is alive. It waits in the ledger for one, without a message.

Moves     queued | parked -> parked
KEYS.record           task:<id>   HASH
KEYS.due              due         ZSET
KEYS.unplaced         unplaced    HASH
ARGV.id
ARGV.due_ms           that was seen
ARGV.due_in_ms: int   when to look again at the latest
ARGV.named            which workers may run it, as JSON
Returns   {"unplaced", is_new: flag} | {"changed"}
          1: it did not wait for one before
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'waiting_for')
local state = found[1]
if (state ~= 'queued' and state ~= 'parked') or redis.call('ZSCORE', KEYS.due, ARGV.id) ~= ARGV.due_ms then
  return {'changed'}
end
leave(ARGV.id, found[2])
redis.call('HDEL', KEYS.record, 'resends', 'unsent')
redis.call('HSET', KEYS.record, 'state', 'parked', 'waiting_for', 'workers')
redis.call('HSET', KEYS.unplaced, ARGV.id, ARGV.named)
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
return {'unplaced', (state == 'parked' and found[2] == 'workers') and 0 or 1}
