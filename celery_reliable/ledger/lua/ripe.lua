--[[
ripe: take out of the lines of limited tasks those whose moment has come, so that they are sent at once.

Who takes them has them alone. If it dies, or never hears the answer, they are due like all that is parked, and the
next pass of the sweeper sends them.

KEYS.pacer           pacer:<whose>   STRING who looks after the lines, with an expiry; others are told to wait while
                                     it is in time
KEYS.due             due             ZSET
KEYS.clock           clock           HASH
KEYS.lines...                        ZSET of the limited tasks of an app, one a task
ARGV.who
ARGV.lease_ms: int   for how long it looks after them
ARGV.late_ms: int    what has waited for longer is anybody's
ARGV.limit: int      of each line
Returns   {"ripe", wait_ms: int, ids_and_times...} | {"another", wait_ms: int}
          with the ms until the next moment, at most lease_ms
Cost      O(lines + limit * log N) in what is in line and in records that are due some time
]]
local pacer = redis.call('GET', KEYS.pacer)
local before_ms = now_ms
if pacer and pacer ~= ARGV.who then
  before_ms = now_ms - ARGV.late_ms
end
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS.due, '')
local reply = {'ripe', 0}
local next_ms = now_ms + ARGV.lease_ms
for n = FIRST.lines, #KEYS do
  local items = redis.call('ZRANGEBYSCORE', KEYS[n], '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV.limit + 1)
  for i = 1, #items, 2 do
    local due_ms = tonumber(items[i + 1])
    if due_ms > before_ms or i > 2 * ARGV.limit then
      next_ms = math.min(next_ms, due_ms)
      break
    end
    redis.call('ZREM', KEYS[n], items[i])
    reply[#reply + 1] = items[i]
    reply[#reply + 1] = items[i + 1]
  end
end
if pacer and pacer ~= ARGV.who and #reply == 2 then
  return {'another', ARGV.lease_ms}
end
redis.call('SET', KEYS.pacer, ARGV.who, 'PX', ARGV.lease_ms)
reply[2] = math.max(0, next_ms - now_ms)
return reply
