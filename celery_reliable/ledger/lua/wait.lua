--[[
wait: let a task wait that may not begin yet: until its ETA, until the next moment of its rate, or until a worker that may run it
is alive. After a late copy of a call with an ETA it waits once more.

The moment of a rate is one interval after the one before it, or now. The last one is noted with the time at which it
was given: where the rate was raised since, what is given already takes as long as by the new one.

A publication that begins soon after its moment, or before it, asks for no other. A moment that lies back for longer has
lapsed: else all whose moments pass while something holds them would begin at once when it lets them go. Each time it
may lie back twice as far, so that nobody whose queue is slow asks for ever.

Moves     queued -> waiting
          waiting -> waiting   (for want of a worker)
KEYS.record             task:<id>     HASH
KEYS.due                due           ZSET
KEYS.rate               rate:<key>    STRING "<when it was given> <the next moment> <interval>", in microseconds
ARGV.id
ARGV.epoch?             of the message; with named: the due_ms that was seen
ARGV.in_ms?: int        until the ETA; with named: until somebody looks for a worker; "" for the moment of a rate
ARGV.interval_us?: int  between two moments of the rate
ARGV.waits_for          the reason: "time", "rate <key>", "workers"
ARGV.list?              the key of the list that its message goes into as it is; "" where it is sent otherwise
ARGV.named?             which workers may run it, as JSON, if it waits for one; "" otherwise
Returns   {"free"} | {"waits_until", due_ms: int} | {"changed"}
          "free": it may ask for a claim now, or has no record in which to note a moment, or the claim has to say why it
          may not begin
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'reserved', 'claim', 'revoked', 'waiting_for')
local due_ms = redis.call('ZSCORE', KEYS.due, ARGV.id)
if ARGV.named ~= '' then
  if not is_to_run(found[1], found[6]) or due_ms ~= ARGV.epoch then
    return {'changed'}
  end
  leave(ARGV.id, found[6])
  stand(ARGV.id, KEYS.record, ARGV.waits_for, ARGV.named, '')
  redis.call('ZADD', KEYS.due, now_ms + ARGV.in_ms, ARGV.id)
  return {'waits_until', string.format('%.0f', now_ms + ARGV.in_ms)}
end
if found[2] == ARGV.epoch and due_ms and found[6] == ARGV.waits_for then
  -- Asked again, or a second message of it.
  return {'waits_until', string.format('%.0f', due_ms)}
end
if found[1] ~= 'queued' or found[2] ~= ARGV.epoch or still_stopping(found[4]) or found[5] then
  return {'free'}
end
local function waits_until(due_ms)
  redis.call('HDEL', KEYS.record, 'resends', 'list')
  redis.call('HSET', KEYS.record, 'since_ms', now_ms)
  if ARGV.list ~= '' then redis.call('HSET', KEYS.record, 'list', ARGV.list) end
  wait_until(ARGV.id, due_ms, ARGV.waits_for)
  return {'waits_until', due_ms}
end
if ARGV.in_ms ~= '' then
  return waits_until(string.format('%.0f', now_ms + ARGV.in_ms))
end
local epoch, reserved_ms, lapses = string.match(found[3] or '', '^(%S*) (%d+) (%d+)$')
if epoch == ARGV.epoch then
  -- Three intervals, and at least the time that a message is on its way to a process.
  if now_us - reserved_ms * 1000 <= math.max(3 * ARGV.interval_us, 2000000) * 2 ^ lapses then
    return {'free'}
  end
  lapses = lapses + 1
else
  lapses = 0
end
local given, moment, interval = string.match(redis.call('GET', KEYS.rate) or '', '^(%d+) (%d+) (%d+)$')
given, moment, interval = tonumber(given or 0), tonumber(moment or 0), tonumber(interval or ARGV.interval_us)
if interval > tonumber(ARGV.interval_us) then
  moment = math.floor(given + (moment - given) * ARGV.interval_us / interval)
end
if given > now_us then
  -- The clock was ahead, and was set back before anybody kept it.
  moment = moment - given + now_us
end
moment = math.max(moment, now_us)
local following = moment + ARGV.interval_us
local keep_ms = math.ceil((following - now_us) / 1000) + 1000
due_ms = string.format('%.0f', math.ceil(moment / 1000))
redis.call('HSET', KEYS.record, 'reserved', string.format('%s %s %d', ARGV.epoch, due_ms, lapses))
redis.call('SET', KEYS.rate, string.format('%.0f %.0f %s', now_us, following, ARGV.interval_us), 'PX', keep_ms)
if moment == now_us then
  return {'free'}
end
return waits_until(due_ms)
