--[[
release: an attempt is over because its worker was stopped on purpose. No loss is counted.

Moves     running(attempt) -> queued
KEYS.record            task:<id>         HASH
KEYS.due               due               ZSET
KEYS.claims            claims:<worker>   HASH of the attempt's worker
KEYS.clock             clock             HASH
ARGV.id
ARGV.attempt: int
ARGV.due_in_ms: int    when somebody must look that it is back in its queue
ARGV.token             of the claim
ARGV.is_unsent: flag   "1": no message of it comes back to its queue; it has to be sent from the record
Returns   {"released"} | {"fenced", state} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'ended', 'token', 'spent', 'next_epoch')
if not found[1] then
  return {'gone'}
end
if found[1] == 'queued' and found[2] == ARGV.attempt and found[3] == ARGV.attempt then
  return {'released'}
end
if found[1] ~= 'running' or found[2] ~= ARGV.attempt or found[4] ~= ARGV.token then
  return {'fenced', found[1]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS.record, 'owner', 'token', 'pid', 'claimed_ms', 'heir')
redis.call('HDEL', KEYS.claims, ARGV.id)
redis.call('HSET', KEYS.record, 'state', 'queued', 'ended', ARGV.attempt, 'sent_ms', now_ms,
  'spent', string.sub((found[5] or ' ') .. ARGV.token .. ' ', -200))
if found[6] then
  -- As in lose.
  redis.call('HDEL', KEYS.record, 'moved', 'next_epoch')
  redis.call('HSET', KEYS.record, 'epoch', found[6])
end
if ARGV.is_unsent == '1' or found[6] then
  redis.call('HSET', KEYS.record, 'unsent', '1')
end
redis.call('ZADD', KEYS.due, now_ms + (found[6] and 0 or ARGV.due_in_ms), ARGV.id)
return {'released'}
