--[[
resend: take the right to send the message of an overdue task again, and return the message.

Moves     queued | parked -> queued
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   unplaced   HASH   "none" where the task has not waited for a worker
ARGV[1]   id
ARGV[2]   due_ms      that was seen: of two sweepers only one sends
ARGV[3]   due_in_ms   when to look again; doubled with every resend, 64 times at most
ARGV[4]   stored      the result that is there, which does not prove that this task has ended; "" not known
ARGV[5]   message   the same, sent to another place; "": as it is
ARGV[6]   epoch     of the message that is there
ARGV[7]   next      epoch of the message that takes its place, so that what was sent before is stale
Returns   {"send", message, due_ms, suspect} | {"held", worker} | {"changed"}
          with the time that is due now, and "" for a task that did not come back from a dead worker; "held" by
          the worker that is to stop an attempt of the task
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'message', 'resends', 'stopping_on',
  'suspect', 'epoch')
if found[1] ~= 'queued' and found[1] ~= 'parked' then
  return {'changed'}
end
if redis.call('ZSCORE', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return {'changed'}
end
if found[4] then
  return {'held', found[4]}
end
local message = found[2]
if ARGV[5] ~= '' then
  if found[6] ~= ARGV[6] then
    return {'changed'}
  end
  message = ARGV[5]
  redis.call('HDEL', KEYS[1], 'waiting_for')
  redis.call('HSET', KEYS[1], 'message', message, 'epoch', ARGV[7])
  redis.call('HDEL', KEYS[3], ARGV[1])
end
local resends = tonumber(found[3] or 0)
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], 'unsent')
redis.call('HSET', KEYS[1], 'state', 'queued', 'sent_ms', now_ms, 'resends', resends + 1)
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'stored', ARGV[4])
end
redis.call('ZADD', KEYS[2], now_ms + ARGV[3] * math.min(2 ^ resends, 64), ARGV[1])
return {'send', message, redis.call('ZSCORE', KEYS[2], ARGV[1]), found[5] or ''}
