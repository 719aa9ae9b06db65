--[[
heartbeat: a worker renews its lease, and hears what was taken from it, what it is to stop, and of new orders.

Moves     alive -> alive   (the lease is renewed; a lapsed lease too, until somebody declared the worker dead)
KEYS.worker          worker:<worker>   HASH
KEYS.workers         workers           ZSET
KEYS.taken           taken:<worker>    HASH id -> "<attempt> <token>"
KEYS.orders          orders            HASH
KEYS.stops           stops:<worker>    HASH id -> "<attempt> <how> <token>"
KEYS.claims          claims:<worker>   HASH of the worker
ARGV.worker          id
ARGV.lease_ms: int
ARGV.client_id: int  of the connection that renews it; 0 where there is no witness
ARGV.number: int     of this call among those of the worker's process; an older one comes late, and changes nothing
ARGV.doing           what it does just now, JSON, for operators; "": not known
Returns   {"renewed", version: int, now_ms: int, n_stops: int, n_claims: int, ids_and_claims...}
          | {"beat_of_dead", version: int, now_ms: int, n_stops: int, n_claims: int, ids_and_claims...}
          | {"forgotten", version: int, now_ms: int, n_stops: int, n_claims: int, ids_and_claims...}
          version: of the orders, "0" if there never were any; n_stops: how many of the claims that follow are to be
          stopped, while they run; n_claims: how many it has; then those that were taken, until acknowledged; "forgotten":
          the sweeper has finished with it
Cost      O(log N) in workers, O(claims taken)
]]
local now_ms = keep_clock()
local found = redis.call('HMGET', KEYS.worker, 'state', 'renewals')
local state, is_late = found[1], tonumber(found[2] or 0) >= tonumber(ARGV.number)
local word = state == 'alive' and 'renewed' or state and 'beat_of_dead' or 'forgotten'
local reply = {word, redis.call('HGET', KEYS.orders, 'version') or '0', now_ms, 0, redis.call('HLEN', KEYS.claims)}
if state == 'alive' and not is_late then
  redis.call('HDEL', KEYS.worker, 'missing_ms', 'missing_renewals')
  redis.call('HSET', KEYS.worker, 'renewals', ARGV.number, 'client_id', ARGV.client_id, 'lease_ms', ARGV.lease_ms,
    'run_id', run_id(), 'doing', ARGV.doing, 'beat_ms', now_ms)
  redis.call('ZADD', KEYS.workers, now_ms + ARGV.lease_ms, ARGV.worker)
elseif state == 'dead' and not is_late then
  -- It lives after all: what the sweeper may not move it can keep.
  redis.call('HSET', KEYS.worker, 'thawed', '1')
end
local stops = redis.call('HGETALL', KEYS.stops)
for i = 1, #stops, 2 do
  local attempt, token = string.match(stops[i + 1], '^(%d+) %a+ (.*)$')
  local claimed, by = string.match(redis.call('HGET', KEYS.claims, stops[i]) or '', '^(%d+) %d+ (.*)$')
  if attempt and attempt == claimed and token == by then
    reply[4] = reply[4] + 1
    reply[#reply + 1] = stops[i]
    reply[#reply + 1] = stops[i + 1]
  else
    -- It has ended.
    redis.call('HDEL', KEYS.stops, stops[i])
  end
end
for _, item in ipairs(redis.call('HGETALL', KEYS.taken)) do
  reply[#reply + 1] = item
end
return reply
