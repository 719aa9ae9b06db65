--[[
register: a worker process takes its lease.

Moves     absent -> alive   (a worker; ids are never used twice)
KEYS.worker          worker:<worker>   HASH
KEYS.workers         workers           ZSET
KEYS.meta            meta              HASH
KEYS.direct          direct            ZSET
ARGV.worker          id
ARGV.lease_ms: int
ARGV.client_id: int  of the connection that will renew it; 0 where there is no witness
ARGV.facts           about the process, JSON: nodename, pid, pool, unacked
ARGV.number: int     of this call among those of the worker's process, as in heartbeat
ARGV.format: int     of a namespace that this release knows
ARGV.queue           that this worker alone consumes; "" for none
Returns   {"registered"} | {"declared_dead"} | {"newer", format}
          "newer": a later release writes here, in a format that this worker would misread
Cost      O(log N) in workers
]]
local format = redis.call('HGET', KEYS.meta, 'format')
if (tonumber(format or '') or 1) > tonumber(ARGV.format) then
  return {'newer', format}
end
local found = redis.call('HMGET', KEYS.worker, 'state', 'renewals')
if found[1] == 'dead' then
  return {'declared_dead'}
end
if found[1] and tonumber(found[2] or 0) >= tonumber(ARGV.number) then
  return {'registered'}
end
local now_ms = keep_clock()
redis.call('HSET', KEYS.worker, 'state', 'alive', 'facts', ARGV.facts, 'client_id', ARGV.client_id,
  'renewals', ARGV.number,
  'run_id', run_id(), 'registered_ms', now_ms,
  'lease_ms', ARGV.lease_ms)
redis.call('ZADD', KEYS.workers, now_ms + ARGV.lease_ms, ARGV.worker)
if ARGV.queue ~= '' then
  redis.call('ZADD', KEYS.direct, now_ms, ARGV.queue)
end
if not format then
  redis.call('HSET', KEYS.meta, 'format', ARGV.format)
end
return {'registered'}
