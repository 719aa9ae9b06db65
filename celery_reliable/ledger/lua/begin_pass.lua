--[[
begin_pass: start a pass of the sweeper, unless one runs or has just finished.

Passes are interrupted when the server was away, was replaced or was restarted, when nobody swept, and when its clock
stepped. Workers may have been unable to renew their leases then, so a grace period of one lease begins in which no
lease counts as lapsed. Its end is stored once and not extended while it lasts, but for the leases that were written
by a clock which had stepped back and has stepped forward again since: only who wrote them has seen it. A stored time
that lies further in the future than it can was written before the clock stepped back, and is not believed.

KEYS.pass                   pass   STRING with a TTL: who runs the pass
KEYS.meta                   meta   HASH
ARGV.nonce                  of this pass
ARGV.interval_ms: int       not before so long after the last pass finished
ARGV.ttl_ms: int            of the pass key
ARGV.interruption_ms: int   a longer gap between passes is an interruption
ARGV.lease_ms: int
ARGV.expected_ms?: int      what the time should be, as the sweeper reckons from what it was told before; ""
ARGV.format: int            of a namespace that this release knows
Returns   {"begun", grace_ms: int, ahead_ms?: int, ahead_count?: int, now_ms: int, behind_ms?: int,
          stepped_ms?: int, stepped_by_ms?: int, seen}
          | {"busy"} | {"not_due", wait_ms: int, now_ms: int} | {"newer", format}
          with since when messages may have been lost, and how often that was said; by how much what is due has to be
          set back; when the clock last stepped forward, and by how much; which workers the last pass has seen, which is
          forgotten, so that a pass that does not end leaves none; "" for what there is not
Cost      O(1)
]]
local meta = redis.call('HMGET', KEYS.meta, 'generation', 'run_id', 'passed_ms', 'grace_ms',
  'ahead_ms', 'ahead_count', 'behind_ms', 'stepped_ms', 'stepped_by_ms', 'format', 'unseen_step', 'seen',
  'latest_ms')
if (tonumber(meta[10] or '') or 1) > tonumber(ARGV.format) then
  return {'newer', meta[10]}
end
-- A generation that lies in the future is a fault of a clock or of a message, and is ignored.
local generation = meta[1] and tonumber(meta[1]) <= now_ms + 86400000 and meta[1]
local passed_ms = tonumber(meta[3] or 0)
local grace_ms = tonumber(meta[4] or 0)
local info = redis.pcall('INFO', 'server')
local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local is_other_server = meta[2] ~= false and run_id ~= meta[2]
-- Who beat or published since the last pass may have seen a clock that was ahead and is not any more.
local latest_ms = math.max(passed_ms, tonumber(meta[13] or 0))
-- The clock has stepped back.  A smaller difference may come from two hosts' clocks, which differ in speed.
local is_back = latest_ms - now_ms > tonumber(ARGV.ttl_ms)
if now_ms - passed_ms < tonumber(ARGV.interval_ms) and not is_other_server and not is_back then
  return {'not_due', passed_ms + ARGV.interval_ms - now_ms, now_ms}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS.meta, '')
if not redis.call('SET', KEYS.pass, ARGV.nonce, 'NX', 'PX', ARGV.ttl_ms) then
  -- A pass never has more time left than at its beginning, unless the clock has stepped back since.
  if redis.call('PTTL', KEYS.pass) <= tonumber(ARGV.ttl_ms) then
    return {'busy'}
  end
  redis.call('SET', KEYS.pass, ARGV.nonce, 'PX', ARGV.ttl_ms)
end
if is_other_server or not generation then
  -- The generation is a time.  A count would come to the same number again on a server that returns twice
  -- to the same old data.
  redis.call('HSET', KEYS.meta, 'generation', string.format('%.0f', math.max(now_ms, tonumber(generation or 0) + 1)),
    'run_id', run_id)
end
if is_back then
  -- Times that were noted before the step are too late by so much.
  meta[7] = string.format('%.0f', (meta[7] or 0) + latest_ms - now_ms)
  redis.call('HSET', KEYS.meta, 'behind_ms', meta[7], 'behind_from_ms', now_ms)
end
if is_other_server or is_back or meta[11] or now_ms - passed_ms > tonumber(ARGV.interruption_ms) then
  if grace_ms <= now_ms or grace_ms > now_ms + ARGV.lease_ms or meta[11] then
    grace_ms = now_ms + ARGV.lease_ms
  end
  redis.call('HSET', KEYS.meta, 'interrupted_ms', now_ms)
  if ARGV.expected_ms ~= '' and now_ms - ARGV.expected_ms > tonumber(ARGV.interruption_ms) then
    meta[8], meta[9] = now_ms, now_ms - ARGV.expected_ms
    redis.call('HSET', KEYS.meta, 'stepped_ms', meta[8], 'stepped_by_ms', meta[9])
  end
end
redis.call('HDEL', KEYS.meta, 'unseen_step', 'seen', 'latest_ms')
redis.call('HSET', KEYS.meta, 'passed_ms', now_ms, 'passed_by', ARGV.nonce, 'grace_ms', grace_ms)
return {'begun', grace_ms, meta[5] or '', meta[6] or '', now_ms, meta[7] or '', meta[8] or '', meta[9] or '', meta[12] or ''}
