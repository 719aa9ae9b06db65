--[[
declare: declare a worker dead if it is still as it was seen, and decide once which task is charged with the death.

The suspect among its claims is charged (there is at most one); without a suspect, its claim if it has only one; else
nobody.

Moves     alive -> dead   (a worker)
KEYS.worker              worker:<worker>   HASH
KEYS.workers             workers           ZSET
KEYS.meta                meta              HASH
KEYS.claims              claims:<worker>   HASH of the worker
ARGV.worker              id
ARGV.cause               "lapsed": its lease ran out; "connection": its connection is gone from the server
ARGV.renewals            that were seen
ARGV.client_id           that was seen
ARGV.witness_ms: int     how long the connection may stay lost
ARGV.expected_ms?: int   what the time should be, as the sweeper reckons from when its pass began; ""
Returns   {"declared"} | {"alive"} | {"grace", until_ms: int} | {"suspected"} | {"already"} | {"gone"}
          "declared" also asks for a look ahead, at what it may have recorded and not sent
Cost      O(log N) in workers
]]
local found = redis.call('HMGET', KEYS.worker, 'state', 'renewals', 'client_id', 'run_id',
  'missing_ms', 'missing_renewals', 'lease_ms')
if not found[1] then
  return {'gone'}
end
if found[1] == 'dead' then
  return {'already'}
end
if found[2] ~= ARGV.renewals or found[3] ~= ARGV.client_id then
  return {'alive'}
end
local until_ms = tonumber(redis.call('ZSCORE', KEYS.workers, ARGV.worker) or 0)
local lease_ms = tonumber(found[7])
local meta = redis.call('HMGET', KEYS.meta, 'grace_ms', 'interrupted_ms', 'passed_ms')
-- The clock was set forward since the pass began, so it proves nothing.  The next pass deals with that.
if ARGV.expected_ms ~= '' and now_ms - ARGV.expected_ms > lease_ms / 4 then
  return {'grace', now_ms + lease_ms}
end
if ARGV.cause == 'connection' then
  local run_id = run_id()
  if run_id == '' or run_id ~= found[4] then
    return {'alive'}
  end
  -- The connection must be missing at two looks, without an interruption in between.
  local missing_ms = tonumber(found[5] or 0)
  if found[6] ~= found[2] or missing_ms < tonumber(meta[2] or 0) then
    redis.call('HSET', KEYS.worker, 'missing_ms', now_ms, 'missing_renewals', found[2])
    return {'suspected'}
  end
  if now_ms - missing_ms < tonumber(ARGV.witness_ms) then
    return {'suspected'}
  end
else
  if until_ms > now_ms then
    return {'alive'}
  end
  local grace_ms = tonumber(meta[1] or 0)
  if grace_ms > now_ms then
    return {'grace', grace_ms}
  end
  -- A pass that began beside the one that asks began by a clock that was set forward since.
  if now_ms - (meta[3] or now_ms) > math.max(lease_ms, 5000) then
    return {'grace', now_ms + lease_ms}
  end
end
local noted = redis.call('HMGET', KEYS.worker, 'suspect', 'suspect_claim')
local verdict, charged = 'nobody', ''
local claims = redis.call('HLEN', KEYS.claims)
if noted[1] and redis.call('HGET', KEYS.claims, noted[1]) == noted[2] then
  verdict, charged = 'suspect', noted[1]
elseif claims == 1 then
  verdict, charged = 'only', redis.call('HGETALL', KEYS.claims)[1]
end
redis.call('HSET', KEYS.worker, 'state', 'dead', 'cause', ARGV.cause, 'declared_ms', now_ms, 'verdict', verdict,
  'charged', charged)
-- What it has recorded and not sent is nowhere. It was last heard one lease before its lease ends.
local since_ms = math.min(until_ms, now_ms) - 2 * lease_ms
redis.call('HSET', KEYS.meta, 'ahead_ms',
  math.min(since_ms, tonumber(redis.call('HGET', KEYS.meta, 'ahead_ms') or since_ms)))
redis.call('HINCRBY', KEYS.meta, 'ahead_count', 1)
-- The last ones, for operators: nothing is left of a worker that has been recovered.
local deaths = cjson.decode(redis.call('HGET', KEYS.meta, 'deaths') or '[]')
deaths[#deaths + 1] = {worker = ARGV.worker, cause = ARGV.cause, at_ms = now_ms, claims = claims}
while #deaths > 20 do table.remove(deaths, 1) end
redis.call('HSET', KEYS.meta, 'deaths', cjson.encode(deaths))
return {'declared'}
