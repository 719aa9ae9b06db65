--[[
declare: declare one worker dead, comparing what was seen.

Moves     alive -> dead   (a worker)
KEYS[1]   worker    HASH
KEYS[2]   workers   ZSET
KEYS[3]   meta      HASH
ARGV[1]   worker       id
ARGV[2]   cause        "lapsed": its lease ran out; "connection": its connection is gone from the server
ARGV[3]   renewals     that were seen
ARGV[4]   client_id    that was seen
ARGV[5]   witness_ms   how long the connection may stay lost
Returns   {"declared"} | {"alive"} | {"grace", until_ms} | {"suspected"} | {"already"} | {"gone"}
Cost      O(log N) in workers
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'renewals', 'client_id', 'run_id',
  'missing_ms', 'missing_renewals')
if not found[1] then
  return {'gone'}
end
if found[1] == 'dead' then
  return {'already'}
end
if found[2] ~= ARGV[3] or found[3] ~= ARGV[4] then
  return {'alive'}
end
if ARGV[2] == 'connection' then
  local info = redis.pcall('INFO', 'server')
  local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
  if run_id == '' or run_id ~= found[4] then
    return {'alive'}
  end
  if found[6] ~= found[2] then
    redis.call('HSET', KEYS[1], 'missing_ms', now_ms, 'missing_renewals', found[2])
    return {'suspected'}
  end
  if now_ms - found[5] < tonumber(ARGV[5]) then
    return {'suspected'}
  end
else
  if tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0) > now_ms then
    return {'alive'}
  end
  local grace_ms = tonumber(redis.call('HGET', KEYS[3], 'grace_ms') or 0)
  if grace_ms > now_ms then
    return {'grace', grace_ms}
  end
end
redis.call('HSET', KEYS[1], 'state', 'dead', 'cause', ARGV[2], 'declared_ms', now_ms)
return {'declared'}
