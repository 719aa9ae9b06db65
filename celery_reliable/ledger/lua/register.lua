--[[
register: a worker process takes its lease.

Moves     absent -> alive   (a worker; ids are never used twice)
KEYS[1]   worker    HASH
KEYS[2]   workers   ZSET
ARGV[1]   worker      id
ARGV[2]   lease_ms
ARGV[3]   client_id   of the connection that will renew it; 0 where there is no witness
ARGV[4]   facts       about the process, JSON: nodename, pid, pool, room
Returns   {"registered"} | {"declared_dead"}
Cost      O(log N) in workers
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if redis.call('HGET', KEYS[1], 'state') == 'dead' then
  return {'declared_dead'}
end
local info = redis.pcall('INFO', 'server')
redis.call('HSET', KEYS[1], 'state', 'alive', 'facts', ARGV[4], 'client_id', ARGV[3], 'renewals', 0,
  'run_id', type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '', 'registered_ms', now_ms,
  'lease_ms', ARGV[2])
redis.call('ZADD', KEYS[2], now_ms + ARGV[2], ARGV[1])
return {'registered'}
