--[[
register: a worker process takes its lease.

Moves     absent -> alive   (a worker; ids are never used twice)
KEYS[1]   worker    HASH
KEYS[2]   workers   ZSET
KEYS[3]   meta      HASH
KEYS[4]   direct    ZSET
ARGV[1]   worker      id
ARGV[2]   lease_ms
ARGV[3]   client_id   of the connection that will renew it; 0 where there is no witness
ARGV[4]   facts       about the process, JSON: nodename, pid, pool, unacked
ARGV[5]   number      of this call among those of the worker's process, as in heartbeat
ARGV[6]   format      of a namespace that this release knows
ARGV[7]   queue       that this worker alone consumes; "" for none
Returns   {"registered"} | {"declared_dead"} | {"newer", format}
          "newer": a later release writes here, in a format that this worker would misread
Cost      O(log N) in workers
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local meta = redis.call('HMGET', KEYS[3], 'format', 'passed_ms')
local format = meta[1]
if (tonumber(format or '') or 1) > tonumber(ARGV[6]) then
  return {'newer', format}
end
local found = redis.call('HMGET', KEYS[1], 'state', 'renewals')
if found[1] == 'dead' then
  return {'declared_dead'}
end
if found[1] and tonumber(found[2] or 0) >= tonumber(ARGV[5]) then
  return {'registered'}
end
local info = redis.pcall('INFO', 'server')
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'state', 'alive', 'facts', ARGV[4], 'client_id', ARGV[3], 'renewals', ARGV[5],
  'run_id', type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '', 'registered_ms', now_ms,
  'lease_ms', ARGV[2])
redis.call('ZADD', KEYS[2], now_ms + ARGV[2], ARGV[1])
-- The clock has stepped back since a pass. If it steps forward again before the next one, only this tells of it.
if tonumber(meta[2] or 0) - now_ms > ARGV[2] / 4 then
  redis.call('HSET', KEYS[3], 'unseen_step', '1')
end
if ARGV[7] ~= '' then
  redis.call('ZADD', KEYS[4], now_ms, ARGV[7])
end
if not format then
  redis.call('HSET', KEYS[3], 'format', ARGV[6])
end
return {'registered'}
