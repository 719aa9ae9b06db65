--[[
wake: let out of the waiting room those whose moment has come. Where a message goes into a list of this database, it is
put there in the same step; what has to be sent otherwise is returned.

One worker of the fleet asks for that, the waker. What it is told and does not send is due like all that is parked, and a
pass of the sweeper sends it.

Moves     parked -> queued
KEYS.waker              waker    STRING who lets them out, with an expiry; others are told to wait while it is in time
KEYS.later              later    ZSET
KEYS.due                due      ZSET
KEYS.records            task:    what the keys of records begin with
KEYS.clock              clock    HASH
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
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS.later, '')
local reply, limited = {'woken', 0}, {}
for i = 1, #found, 2 do
  local id, record = found[i], KEYS.records .. found[i]
  local told = redis.call('HMGET', record, 'state', 'waiting_for', 'list', 'message', 'suspect', 'stopping_on',
    'revoked')
  local is_limited = string.sub(told[2] or '', 1, 5) == 'rate '
  redis.call('ZREM', KEYS.later, id)
  -- What waits for something else by now, or is due at another time, does not wait for this moment.
  if told[1] == 'parked' and (is_limited or not told[2]) and not told[7]
      and redis.call('ZSCORE', KEYS.due, id) == found[i + 1] then
    -- What was in a death says so in its message.
    if told[3] and not told[5] and not told[6] then
      redis.call('HDEL', record, 'waiting_for', 'list', 'unsent', 'resends')
      redis.call('HSET', record, 'state', 'queued', 'sent_ms', now_ms)
      redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, id)
      if is_limited then
        limited[#limited + 1] = {told[3], told[4]}
      else
        redis.call('LPUSH', told[3], told[4])
      end
    else
      reply[#reply + 1] = id
      reply[#reply + 1] = found[i + 1]
    end
  end
end
-- In front: they have had their turn once. The first moment is the foremost.
for i = #limited, 1, -1 do
  redis.call('RPUSH', limited[i][1], limited[i][2])
end
redis.call('SET', KEYS.waker, ARGV.who, 'PX', ARGV.lease_ms)
local next_ms = redis.call('ZRANGE', KEYS.later, 0, 0, 'WITHSCORES')[2] or math.huge
reply[2] = math.max(0, math.min(next_ms - now_ms, math.floor(ARGV.lease_ms / 2)))
return reply
