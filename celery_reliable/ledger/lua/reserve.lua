--[[
reserve: a task of a limited rate asks for its moment. If that lies ahead, the task is parked until then, and stands in
the line of those that are.

A moment is one interval after the one before it, or now. So that a clock which was ahead takes nobody's time, the last
moment is noted with the time at which it was given, and counts from then. Where the rate was raised since, what is given
already takes as long as by the new one.

A publication that begins soon after its moment, or before it, asks for no other. A moment that lies back for longer has
lapsed: else all whose moments pass while something holds them would begin at once when it lets them go. Each time it
may lie back twice as far, so that nobody whose queue is slow asks for ever.

Moves     queued -> parked
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   rate     STRING   "<when it was given> <the next moment> <interval>", in microseconds
KEYS[4]   line     ZSET     task id by its moment; what is not waiting there any more is passed over
ARGV[1]   id
ARGV[2]   epoch         of the message
ARGV[3]   interval_us   between two moments
ARGV[4]   key           whose rate it is, for people
Returns   {"free"} | {"parked_until", due_ms}
          "free": it may ask for a claim now, or has no record in which to note a moment, or the claim has to say why
          it may not begin
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'reserved', 'stopping_on', 'revoked', 'waiting_for')
local epoch, reserved_ms, lapses = string.match(found[3] or '', '^(%S*) (%d+) (%d+)$')
if epoch == ARGV[2] and found[1] == 'parked' and found[2] == ARGV[2] then
  -- Asked again, or a second message of it.
  local due_ms = redis.call('ZSCORE', KEYS[2], ARGV[1])
  if due_ms and found[6] == 'rate ' .. ARGV[4] then
    return {'parked_until', due_ms}
  end
end
if found[1] ~= 'queued' or found[2] ~= ARGV[2] or found[4] or found[5] then
  return {'free'}
end
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
if epoch == ARGV[2] then
  -- Three intervals, and at least the time that a message is on its way to a process.
  if now_us - reserved_ms * 1000 <= math.max(3 * ARGV[3], 2000000) * 2 ^ lapses then
    return {'free'}
  end
  lapses = lapses + 1
else
  lapses = 0
end
local given, moment, interval = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%d+) (%d+)$')
given, moment, interval = tonumber(given or 0), tonumber(moment or 0), tonumber(interval or ARGV[3])
if interval > tonumber(ARGV[3]) then
  moment = math.floor(given + (moment - given) * ARGV[3] / interval)
end
if given > now_us then
  -- The clock has stepped back since.
  moment = moment - given + now_us
end
moment = math.max(moment, now_us)
local following = moment + ARGV[3]
local keep_ms = math.ceil((following - now_us) / 1000) + 1000
local due_ms = string.format('%.0f', math.ceil(moment / 1000))
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], 'reserved')
redis.call('HSET', KEYS[1], 'reserved', string.format('%s %s %d', ARGV[2], due_ms, lapses))
redis.call('SET', KEYS[3], string.format('%.0f %.0f %s', now_us, following, ARGV[3]), 'PX', keep_ms)
if moment == now_us then
  return {'free'}
end
redis.call('HDEL', KEYS[1], 'resends', 'unsent')
redis.call('HSET', KEYS[1], 'state', 'parked', 'waiting_for', 'rate ' .. ARGV[4])
redis.call('ZADD', KEYS[2], due_ms, ARGV[1])
redis.call('ZADD', KEYS[4], due_ms, ARGV[1])
return {'parked_until', due_ms}
