--[[
wake: let out of the waiting room those whose moment has come. Where a message goes into a list of this database, it is
put there in the same step; what has to be sent otherwise is returned.

One worker of the fleet asks for that, the waker. What it is told and does not send is due like all that waits, and a
pass of the sweeper sends it.

Moves     waiting -> queued
KEYS.waker              waker    STRING who lets them out, with an expiry; others are told to wait while it is in time
KEYS.later              later    ZSET
ARGV.who
ARGV.lease_ms: int      for how long it is the waker
ARGV.limit: int         so many are looked at
ARGV.due_in_ms: int     when somebody must look at what was sent
Returns   {"woken", wait_ms: int, ids_and_times...} | {"another", wait_ms: int}
          with the ms until the next moment, at most half of lease_ms, and what is to be sent, in the order of the
          moments; "another" is the waker, for so many ms
Cost      O(limit * log N) in what waits and in records that are due some time
]]
local waker = redis.call('GET', KEYS.waker)
local left_ms = redis.call('PTTL', KEYS.waker)
-- A lease has more left only where the server's clock was set back.
if waker and waker ~= ARGV.who and left_ms <= tonumber(ARGV.lease_ms) then
  return {'another', left_ms}
end
local found = redis.call('ZRANGEBYSCORE', KEYS.later, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV.limit)
local reply, foremost, unsent = {'woken', 0}, {}, {}
local function wake(i, is_first)
  unsent[i] = not let_out(found[i], KEYS.ledger .. 'task:' .. found[i], ARGV.due_in_ms, is_first)
end
for i = 1, #found, 2 do
  local told = redis.call('HMGET', KEYS.ledger .. 'task:' .. found[i], 'waiting_for', 'revoked')
  redis.call('ZREM', KEYS.later, found[i])
  -- What is due at another time by now does not wait for this moment.
  if told[1] and not told[2] and redis.call('ZSCORE', KEYS.ledger .. 'due', found[i]) == found[i + 1] then
    if string.find(told[1], ' ', 1, true) then
      foremost[#foremost + 1] = i
    else
      wake(i)
    end
  end
end
-- A reason that names what the task waited for: it has had its turn in the queue once. The first moment is the foremost.
for n = #foremost, 1, -1 do wake(foremost[n], true) end
for i = 1, #found, 2 do
  if unsent[i] then
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = found[i + 1]
  end
end
redis.call('SET', KEYS.waker, ARGV.who, 'PX', ARGV.lease_ms)
local next_ms = redis.call('ZRANGE', KEYS.later, 0, 0, 'WITHSCORES')[2] or math.huge
reply[2] = math.max(0, math.min(next_ms - now_ms, math.floor(ARGV.lease_ms / 2)))
return reply
