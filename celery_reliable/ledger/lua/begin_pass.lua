--[[
begin_pass: start a pass of the sweeper, unless one runs or has just finished.

Passes are interrupted when the server was away, was replaced or was restarted, when nobody swept, and when its clock
was set forward. Workers may have been unable to renew their leases then, so a grace period of one lease begins in
which no lease counts as lapsed. Its end is stored once and not extended while it lasts.

KEYS.pass                   pass   STRING with a TTL: who runs the pass
KEYS.meta                   meta   HASH
KEYS.workers                workers   ZSET
KEYS.due                    due       ZSET
KEYS.dead                   dead      ZSET
KEYS.orders                 orders    HASH
ARGV.nonce                  of this pass
ARGV.interval_ms: int       not before so long after the last pass finished
ARGV.ttl_ms: int            of the pass key
ARGV.interruption_ms: int   a longer gap between passes is an interruption
ARGV.lease_ms: int
ARGV.expected_ms?: int      what the time should be, as the sweeper reckons from what it was told before; ""
ARGV.format: int            of a namespace that this release knows
Returns   {"begun", grace_ms: int, ahead_ms?: int, ahead_count?: int, now_ms: int, stepped_ms?: int,
          stepped_by_ms?: int, seen, has_due: int, n_orders: int, n_dead: int, oldest_ms: int, ids_and_times...}
          | {"busy"} | {"not_due", wait_ms: int, now_ms: int} | {"newer", format}
          "begun" with since when messages may have been lost, and how often that was said; when the clock was last set
          forward, and by how much; which workers the last pass has seen, which is forgotten, so that a pass that does
          not end leaves none; "" for what there is not. Then what there is to look at, so that an idle fleet asks
          little: whether a record is due, how many orders and dead letters there are, when the oldest was buried; and
          the workers, with the times at which their leases run out
Cost      O(log N) in records that are due some time, O(workers)
]]
local meta = redis.call('HMGET', KEYS.meta, 'generation', 'run_id', 'passed_ms', 'grace_ms',
  'ahead_ms', 'ahead_count', 'stepped_ms', 'stepped_by_ms', 'format', 'seen')
if (tonumber(meta[9] or '') or 1) > tonumber(ARGV.format) then
  return {'newer', meta[9]}
end
-- Also by who is too early: while nobody keeps it, a clock that was set back stands still.
local now_ms = keep_clock()
-- A generation that lies in the future is a fault of a clock or of a message, and is ignored.
local generation = meta[1] and tonumber(meta[1]) <= now_ms + 86400000 and meta[1]
local passed_ms = tonumber(meta[3] or 0)
local grace_ms = tonumber(meta[4] or 0)
local run_id = run_id()
local is_other_server = meta[2] ~= false and run_id ~= meta[2]
if now_ms - passed_ms < tonumber(ARGV.interval_ms) and not is_other_server then
  return {'not_due', passed_ms + ARGV.interval_ms - now_ms, now_ms}
end
-- A pass never has more time left than at its beginning, unless the server's clock was set back, by which it expires.
if redis.call('EXISTS', KEYS.pass) == 1 and redis.call('PTTL', KEYS.pass) <= tonumber(ARGV.ttl_ms) then
  return {'busy'}
end
redis.call('HDEL', KEYS.meta, 'seen')
redis.call('SET', KEYS.pass, ARGV.nonce, 'PX', ARGV.ttl_ms)
if is_other_server or not generation then
  -- The generation is a time.  A count would come to the same number again on a server that returns twice
  -- to the same old data.
  redis.call('HSET', KEYS.meta, 'generation', string.format('%.0f', math.max(now_ms, tonumber(generation or 0) + 1)),
    'run_id', run_id)
end
if is_other_server or now_ms - passed_ms > tonumber(ARGV.interruption_ms) then
  if grace_ms <= now_ms then
    grace_ms = now_ms + ARGV.lease_ms
  end
  redis.call('HSET', KEYS.meta, 'interrupted_ms', now_ms)
  if ARGV.expected_ms ~= '' and now_ms - ARGV.expected_ms > tonumber(ARGV.interruption_ms) then
    meta[7], meta[8] = now_ms, now_ms - ARGV.expected_ms
    redis.call('HSET', KEYS.meta, 'stepped_ms', meta[7], 'stepped_by_ms', meta[8])
  end
end
redis.call('HSET', KEYS.meta, 'passed_ms', now_ms, 'passed_by', ARGV.nonce, 'grace_ms', grace_ms)
local reply = {'begun', grace_ms, meta[5] or '', meta[6] or '', now_ms, meta[7] or '', meta[8] or '', meta[10] or '',
  #redis.call('ZRANGEBYSCORE', KEYS.due, '-inf', now_ms, 'LIMIT', 0, 1), math.max(0, redis.call('HLEN', KEYS.orders) - 1),
  redis.call('ZCARD', KEYS.dead), redis.call('ZRANGE', KEYS.dead, 0, 0, 'WITHSCORES')[2] or 0}
for _, item in ipairs(redis.call('ZRANGE', KEYS.workers, 0, -1, 'WITHSCORES')) do reply[#reply + 1] = item end
return reply
