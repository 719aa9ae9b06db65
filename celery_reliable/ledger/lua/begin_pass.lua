--[[
begin_pass: start a pass of the sweeper unless one runs or has just finished.

An interruption of the passes (the server was away or is another one, nobody swept) starts a grace period of
one lease in which no lease counts as lapsed. It is one stored deadline, never extended while it runs.

KEYS[1]   pass   STRING   with a TTL: who runs the pass
KEYS[2]   meta   HASH
ARGV[1]   nonce             of this pass
ARGV[2]   interval_ms       not before so long after the last pass finished
ARGV[3]   ttl_ms            of the pass key
ARGV[4]   interruption_ms   a longer gap between passes is an interruption
ARGV[5]   lease_ms
Returns   {"begun", grace_ms, ahead_ms, ahead_count} | {"busy"} | {"not_due", wait_ms}
          with since when messages may have been lost, and how often that was said; "" when nobody said so
Cost      O(1)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local meta = redis.call('HMGET', KEYS[2], 'generation', 'run_id', 'passed_ms', 'grace_ms',
  'ahead_ms', 'ahead_count')
-- None of the future, as in record.
local generation = meta[1] and tonumber(meta[1]) <= now_ms + 86400000 and meta[1]
local passed_ms = tonumber(meta[3] or 0)
local grace_ms = tonumber(meta[4] or 0)
local info = redis.pcall('INFO', 'server')
local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local is_other_server = meta[2] ~= false and run_id ~= meta[2]
if now_ms - passed_ms < tonumber(ARGV[2]) and not is_other_server then
  return {'not_due', passed_ms + ARGV[2] - now_ms}
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then
  return {'busy'}
end
if is_other_server or not generation then
  -- Of the time: whoever comes back with the same old data twice would count to the same number twice.
  redis.call('HSET', KEYS[2], 'generation', string.format('%.0f', math.max(now_ms, tonumber(generation or 0) + 1)),
    'run_id', run_id)
end
if (is_other_server or now_ms - passed_ms > tonumber(ARGV[4])) and grace_ms <= now_ms then
  grace_ms = now_ms + ARGV[5]
end
redis.call('HSET', KEYS[2], 'passed_ms', now_ms, 'grace_ms', grace_ms)
return {'begun', grace_ms, meta[5] or '', meta[6] or ''}
