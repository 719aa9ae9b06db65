--[[
ripe: take out of the lines of limited tasks those whose moment has come, so that they are sent at once.

A time that was noted before the clock stepped back is too late. It is set right in `due` by set_back; whoever asks
here looks at the first and the last of each line. If one of them is due at another time, or not due any more, some of
that end and of the other are set right.

Who takes them has them alone. If it dies, or never hears the answer, they are due like all that is parked, and the
next pass of the sweeper sends them.

KEYS[1]   pacer   STRING   who looks after the lines, with an expiry; others are told to wait while it is in time
KEYS[2]   due     ZSET
KEYS[3...]  lines  ZSET    of the limited tasks of an app, one a task
ARGV[1]   who
ARGV[2]   lease_ms   for how long it looks after them
ARGV[3]   late_ms    what has waited for longer is anybody's
ARGV[4]   limit      of each line
Returns   {"ripe", wait_ms, id, due_ms, ...} | {"another", wait_ms}
          with the ms until the next moment, at most lease_ms
Cost      O(lines + limit * log N) in what is in line and in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local pacer = redis.call('GET', KEYS[1])
local before_ms = now_ms
if pacer and pacer ~= ARGV[1] then
  before_ms = now_ms - ARGV[3]
end
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS[2], '')
local function is_right(n, at)
  local item = redis.call('ZRANGE', KEYS[n], at, at, 'WITHSCORES')
  return not item[1] or redis.call('ZSCORE', KEYS[2], item[1]) == item[2]
end
local function set_right(n, items)
  for i = 1, #items, 2 do
    local due_ms = redis.call('ZSCORE', KEYS[2], items[i])
    if due_ms and tonumber(due_ms) < tonumber(items[i + 1]) then
      redis.call('ZADD', KEYS[n], due_ms, items[i])
    elseif due_ms ~= items[i + 1] then
      redis.call('ZREM', KEYS[n], items[i])
    end
  end
end
local reply = {'ripe', 0}
local next_ms = now_ms + ARGV[2]
for n = 3, #KEYS do
  if not is_right(n, 0) or not is_right(n, -1) then
    set_right(n, redis.call('ZRANGE', KEYS[n], 0, ARGV[4] - 1, 'WITHSCORES'))
    set_right(n, redis.call('ZRANGE', KEYS[n], -ARGV[4], -1, 'WITHSCORES'))
  end
  local items = redis.call('ZRANGEBYSCORE', KEYS[n], '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4] + 1)
  for i = 1, #items, 2 do
    local due_ms = tonumber(items[i + 1])
    if due_ms > before_ms or i > 2 * ARGV[4] then
      next_ms = math.min(next_ms, due_ms)
      break
    end
    redis.call('ZREM', KEYS[n], items[i])
    reply[#reply + 1] = items[i]
    reply[#reply + 1] = items[i + 1]
  end
end
if pacer and pacer ~= ARGV[1] and #reply == 2 then
  return {'another', ARGV[2]}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
reply[2] = math.max(0, next_ms - now_ms)
return reply
