--[[
release: an attempt is over because its worker was stopped on purpose. No loss is counted.

Moves     running(attempt) -> queued
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   claims   HASH   of the attempt's worker
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   due_in_ms   when somebody must look that it is back in its queue
ARGV[4]   token       of the claim
ARGV[5]   is_unsent   "1": no message of it comes back to its queue; it has to be sent from the record
Returns   {"released"} | {"fenced", state} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'ended', 'token', 'spent', 'next_epoch')
if not found[1] then
  return {'gone'}
end
if found[1] == 'queued' and found[2] == ARGV[2] and found[3] == ARGV[2] then
  return {'released'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[2] or found[4] ~= ARGV[4] then
  return {'fenced', found[1]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], 'owner', 'token', 'pid', 'claimed_ms', 'heir')
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[1], 'state', 'queued', 'ended', ARGV[2], 'sent_ms', now_ms,
  'spent', string.sub((found[5] or ' ') .. ARGV[4] .. ' ', -200))
if found[6] then
  -- As in lose.
  redis.call('HDEL', KEYS[1], 'moved', 'next_epoch')
  redis.call('HSET', KEYS[1], 'epoch', found[6])
end
if ARGV[5] == '1' or found[6] then
  redis.call('HSET', KEYS[1], 'unsent', '1')
end
redis.call('ZADD', KEYS[2], now_ms + (found[6] and 0 or ARGV[3]), ARGV[1])
return {'released'}
