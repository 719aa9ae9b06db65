--[[
claim: begin an attempt, or say why not.

Moves     queued -> running(attempt + 1)
          absent -> running(1)   (published by somebody without the package, or before records were lost)
          waiting -> queued   (the same, of an id of which something is still to be stopped)
          queued | absent -> parked   (an operator has struck the task, and the worker knows of it)
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   meta     HASH
KEYS[4]   worker   HASH
KEYS[5]   claims   HASH   of that worker
KEYS[6]   orders   HASH   given only by a worker that knows of a strike on the task
KEYS[7]   ordered  ZSET   likewise
ARGV[1]   id
ARGV[2]   epoch        of the message; "" when it carries none
ARGV[3]   generation   of the message; "" when it carries none
ARGV[4]   worker       id
ARGV[5]   token        names this delivery of the message; the same token gets the same attempt
ARGV[6]   pid          of the process that runs it
ARGV[7]   time_to_run_ms   0: no limit
ARGV[8]   name         of the task
ARGV[9]   max_losses   of the task; "" for the setting
ARGV[10]  message      as delivered; "" first, it is asked for when no record exists
ARGV[11]  alone_ms     when a suspect that its worker may not run now is sent again, at first; "": it is claimed
                       in any case, to be lost at once
ARGV[12...]  orders    the ids of those strikes
Returns   {"claimed", attempt, losses} | {"held", owner} | {"stale"} | {"parked"} | {"ended"}
          | {"dead"} | {"no_lease"} | {"unrecorded"} | {"alone"} | {"struck", order}
          "held" also while a worker that lives has not yet stopped an attempt that was taken from it; then
          the record is due, as this message is dropped; "alone": the task ran in a worker that died, and this
          one has to do with another such task; it is sent again, the later the oftener this was so
          "stale" also of a task that was revoked as it ran: it is due, to be called off
          "struck" by an order that holds: the record is parked until that ends
          A script that calls this one as a function is returned the record's object as well, if it notes one.
Cost      O(log N) in records that are due some time, O(strikes on the task)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'attempt', 'token', 'owner', 'losses',
  'stopping_on', 'suspect', 'called_off', 'revoked', 'spent', 'spared', 'resends', 'unsent', 'stored', 'waiting_for',
  'object')
local state, called_off = found[1], found[9]
if state == 'running' then
  if found[4] == ARGV[5] then
    return {'claimed', tonumber(found[3]), tonumber(found[6] or 0)}, found[17]
  end
  return {'held', found[5]}
end
if state == 'dead' then
  return {'dead'}
end
local worker = redis.call('HMGET', KEYS[4], 'state', 'opening_id', 'spared_claims')
if worker[1] ~= 'alive' then
  return {'no_lease'}
end
if not state or called_off then
  local latest_ms = now_ms + 86400000
  -- A generation that lies in the future proves nothing, and the next one is not counted on from it.
  if ARGV[3] ~= '' and tonumber(ARGV[3]) <= latest_ms then
    local info = redis.pcall('INFO', 'server')
    local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
    local meta = redis.call('HMGET', KEYS[3], 'generation', 'run_id')
    local generation = meta[1] and tonumber(meta[1]) <= latest_ms and meta[1]
    if not generation or run_id == '' or run_id ~= meta[2] then
      -- The generation is a time, as in begin_pass.
      generation = string.format('%.0f', math.max(now_ms, tonumber(generation or 0) + 1, tonumber(ARGV[3]) + 1))
      redis.call('HDEL', KEYS[3], '')
      redis.call('HSET', KEYS[3], 'generation', generation, 'run_id', run_id)
    end
    if generation == ARGV[3] then
      return {'ended'}
    end
  end
  if ARGV[10] == '' then
    return {'unrecorded'}
  end
  redis.call('HDEL', KEYS[1], 'max_losses')
  redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'message', ARGV[10], 'name', ARGV[8],
    'published_ms', now_ms, 'used', '1')
  if ARGV[9] ~= '' then
    redis.call('HSET', KEYS[1], 'max_losses', ARGV[9])
  end
  if called_off then
    redis.call('HDEL', KEYS[1], 'called_off', 'published_as')
    if found[7] then
      -- The id's former task was called off, and what ran of it is still to be stopped.
      redis.call('HSET', KEYS[1], 'state', 'queued')
      redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
      return {'held', found[7]}
    end
  end
elseif found[2] ~= ARGV[2] or state == 'waiting'
    or (found[11] and string.find(found[11], ' ' .. ARGV[5] .. ' ', 1, true)) then
  -- The last condition is a late copy of a call: nobody would run what it claims.
  return {'stale'}
elseif state == 'parked' then
  return {'parked'}
elseif found[7] then
  redis.call('HDEL', KEYS[1], '')
  redis.call('ZADD', KEYS[2], 'XX', 'LT', now_ms, ARGV[1])
  return {'held', found[7]}
elseif found[10] then
  redis.call('HDEL', KEYS[1], '')
  redis.call('ZADD', KEYS[2], 'XX', 'LT', now_ms, ARGV[1])
  return {'stale'}
elseif found[8] == 'ran' and ARGV[11] ~= '' then
  local other = redis.call('HMGET', KEYS[4], 'suspect', 'suspect_claim')
  local is_running = other[1] and redis.call('HGET', KEYS[5], other[1]) == other[2]
  if is_running or (worker[2] and worker[2] ~= ARGV[1]) then
    if redis.call('HGET', KEYS[1], 'alone') == ARGV[5] then
      return {'alone'}
    end
    redis.call('HDEL', KEYS[1], 'resends')
    local times = redis.call('HINCRBY', KEYS[1], 'waits', 1)
    -- At random, so that not all suspects come back at the same time: only one of them can begin.
    local wait_ms = math.floor(ARGV[11] * math.min(2 ^ (times - 1), 16) * (0.5 + time[2] % 1000 / 2000))
    redis.call('HSET', KEYS[1], 'unsent', '1', 'alone', ARGV[5])
    redis.call('ZADD', KEYS[2], now_ms + wait_ms, ARGV[1])
    return {'alone'}
  end
end
for i = 12, #ARGV do
  local text = redis.call('HGET', KEYS[6], ARGV[i])
  local is_read, order = pcall(cjson.decode, text or '')
  if is_read and type(order) == 'table' and not order.ended_ms
      and ((order.until_ms or 0) == 0 or now_ms < order.until_ms) then
    local published_ms = redis.call('HGET', KEYS[1], 'published_ms') or now_ms
    redis.call('HDEL', KEYS[1], 'resends', 'unsent')
    redis.call('HSET', KEYS[1], 'state', 'parked', 'waiting_for', 'order ' .. ARGV[i])
    -- Whoever ends the order lets it go before that. This is for an order that is lost.
    redis.call('ZADD', KEYS[2], now_ms + 3600000, ARGV[1])
    redis.call('ZADD', KEYS[7], 0, string.format('%s %015.0f.%012.0f %s', ARGV[i], published_ms,
      tonumber(string.match(ARGV[2], '%-(%d+)$') or 0), ARGV[1]))
    return {'struck', ARGV[i]}
  end
end
local attempt = tonumber(found[3] or 0) + 1
-- A removal comes first: a full Redis runs the rest of a script that has removed something.  Otherwise no worker
-- could work a full Redis off.
redis.call('ZREM', KEYS[2], ARGV[1])
if found[13] or found[14] or found[15] or found[16] then
  redis.call('HDEL', KEYS[1], 'resends', 'unsent', 'stored', 'waiting_for')
end
redis.call('HSET', KEYS[1], 'state', 'running', 'attempt', attempt, 'owner', ARGV[4],
  'token', ARGV[5], 'pid', ARGV[6], 'claimed_ms', now_ms)
local claim = attempt .. ' ' .. ARGV[6] .. ' ' .. ARGV[5]
redis.call('HSET', KEYS[5], ARGV[1], claim)
if worker[2] == ARGV[1] then
  redis.call('HDEL', KEYS[4], 'opening', 'opening_id', 'opening_epoch', 'opening_alone')
end
if found[8] == 'ran' then
  redis.call('HDEL', KEYS[1], 'waits', 'alone', 'openings')
  if ARGV[11] ~= '' then
    redis.call('HSET', KEYS[4], 'suspect', ARGV[1], 'suspect_claim', claim, 'suspect_ms', now_ms)
  end
elseif found[8] then
  redis.call('HDEL', KEYS[1], 'waits', 'alone', 'suspect', 'openings')
end
local was_in_death = tonumber(found[12] or 0) > 0
if was_in_death or worker[3] then
  -- It may be what killed a worker, so that a death beside it is not clear.
  local running = {}
  for id, other in pairs(cjson.decode(worker[3] or '{}')) do
    if id ~= ARGV[1] and redis.call('HGET', KEYS[5], id) == other then running[id] = other end
  end
  redis.call('HDEL', KEYS[4], 'spared_claims')
  if was_in_death then
    running[ARGV[1]] = claim
    redis.call('HDEL', KEYS[4], 'opening_alone')
  end
  if next(running) then
    redis.call('HSET', KEYS[4], 'spared_claims', cjson.encode(running))
  end
end
if tonumber(ARGV[7]) > 0 then
  redis.call('ZADD', KEYS[2], now_ms + ARGV[7], ARGV[1])
end
return {'claimed', attempt, tonumber(found[6] or 0)}, found[17]
