--[[
claim: begin an attempt, or say why not.

Moves     queued -> running(attempt + 1)
          absent -> running(1)   (published by somebody without the package, or before records were lost)
          waiting -> queued   (the same, of an id that was called off, and of which something is still to be stopped)
          held by the publication of the same id -> held
          queued | absent -> waiting   (an operator has struck the task, and the worker knows of it; or a suspect has to
                                     be alone)
KEYS.record                task:<id>         HASH
KEYS.due                   due               ZSET
KEYS.meta                  meta              HASH
KEYS.worker                worker:<worker>   HASH
KEYS.claims                claims:<worker>   HASH of that worker
KEYS.orders+               orders            HASH given only by a worker that knows of a strike on the task
ARGV.id
ARGV.epoch                 of the message; "" when it carries none
ARGV.generation            of the message; "" when it carries none
ARGV.worker                id
ARGV.token                 names this delivery of the message; the same token gets the same attempt
ARGV.pid: int              of the process that runs it
ARGV.time_to_run_ms: int   0: no limit
ARGV.name                  of the task
ARGV.max_losses?: int      of the task; "" for the setting
ARGV.message?              as delivered; "" first, it is asked for when no record exists
ARGV.alone_ms?: int        after about so long a suspect is sent again that its worker may not run now; "": it is claimed
                           in any case, to be lost at once
ARGV.list+                 the list that the message goes into as it is when a strike ends; "" where it is sent otherwise
ARGV.strikes...            the ids of those strikes
Returns   {"claimed", attempt: int, losses: int, place} | {"held", owner} | {"stale"} | {"waits"} | {"ended"}
          | {"dead"} | {"no_lease"} | {"unrecorded"} | {"alone"} | {"struck", order}
          "held" also while a worker that lives has not yet stopped an attempt that was taken from it; then
          the record is due, as this message is dropped; "alone": the task ran in a worker that died, and this
          one has to do with another such task; it waits a little
          "stale" also of a task that was revoked as it ran: it is due, to be called off
          "struck" by an order that holds: the record waits until that ends; the place of its object that a claimed
          task has since it was published, or its turn came, is the attempt's from now on; "" for none
Cost      O(log N) in records that are due some time, O(strikes on the task)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'attempt', 'claim', 'losses',
  'deaths', 'waiting_for', 'revoked', 'resends', 'used', 'object')
local is_suspect = found[6] and ARGV.alone_ms ~= '' and string.find(found[6], 'suspect', 1, true)
local state, called_off = found[1], found[7] == 'stop'
local token, _, _, owner, spent = parts_of(found[4])
if state == 'running' then
  if token == ARGV.token then
    local place = found[11] or ''
    local is_his = place ~= '' and redis.call('GET', KEYS.ledger .. 'lock:' .. place) == found[3] .. ':' .. ARGV.id
    return {'claimed', tonumber(found[3]), tonumber(found[5] or 0), is_his and place or ''}
  end
  return {'held', owner}
end
if state == 'dead' then
  return {'dead'}
end
if redis.call('HGET', KEYS.worker, 'state') ~= 'alive' then
  return {'no_lease'}
end
if not state or called_off then
  local latest_ms = now_ms + 86400000
  -- A generation that lies in the future proves nothing, and the next one is not counted on from it.
  if ARGV.generation ~= '' and tonumber(ARGV.generation) <= latest_ms then
    local run_id = run_id()
    local meta = redis.call('HMGET', KEYS.meta, 'generation', 'run_id')
    local generation = meta[1] and tonumber(meta[1]) <= latest_ms and meta[1]
    if not generation or run_id == '' or run_id ~= meta[2] then
      -- The generation is a time, as in begin_pass.
      generation = string.format('%.0f', math.max(now_ms, tonumber(generation or 0) + 1, tonumber(ARGV.generation) + 1))
      redis.call('HSET', KEYS.meta, 'generation', generation, 'run_id', run_id)
    end
    if generation == ARGV.generation then
      return {'ended'}
    end
  end
  if ARGV.message == '' then
    return {'unrecorded'}
  end
  redis.call('HDEL', KEYS.record, 'max_losses')
  redis.call('HSET', KEYS.record, 'epoch', ARGV.epoch, 'message', ARGV.message, 'name', ARGV.name,
    'published_ms', now_ms, 'since_ms', now_ms, 'used', '')
  if ARGV.max_losses ~= '' then
    redis.call('HSET', KEYS.record, 'max_losses', ARGV.max_losses)
  end
  if called_off then
    redis.call('HDEL', KEYS.record, 'waiting_for', 'published_as')
    if still_stopping(found[4]) then
      -- The id's former task was called off, and what ran of it is still to be stopped.
      redis.call('HSET', KEYS.record, 'state', 'queued')
      redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
      return {'held', owner}
    end
  end
elseif found[2] ~= ARGV.epoch or is_spent(found[4]) then
  -- The last condition is a late copy of a call: nobody would run what it claims.
  return {'stale'}
elseif state == 'waiting' then
  return {found[7] == 'alone' and 'alone' or 'waits'}
elseif still_stopping(found[4]) then
  redis.call('ZADD', KEYS.due, 'XX', 'LT', now_ms, ARGV.id)
  return {'held', owner}
elseif found[8] then
  redis.call('ZADD', KEYS.due, 'XX', 'LT', now_ms, ARGV.id)
  return {'stale'}
elseif is_suspect then
  local other = redis.call('HMGET', KEYS.worker, 'suspect', 'suspect_claim')
  if other[1] and redis.call('HGET', KEYS.claims, other[1]) == other[2] then
    redis.call('HDEL', KEYS.record, 'resends', 'list')
    redis.call('HSET', KEYS.record, 'since_ms', now_ms)
    -- At random: if all suspects came back at once, only one could begin.
    wait_until(ARGV.id, string.format('%.0f', now_ms + ARGV.alone_ms * (0.5 + now_us % 1000 / 1000)), 'alone')
    return {'alone'}
  end
end
for i = FIRST.strikes, #ARGV do
  local text = redis.call('HGET', KEYS.orders, ARGV[i])
  local is_read, order = pcall(cjson.decode, text or '')
  if is_read and type(order) == 'table' and not order.ended_ms
      and ((order.until_ms or 0) == 0 or now_ms < order.until_ms) then
    local published_ms = redis.call('HGET', KEYS.record, 'published_ms') or now_ms
    stand(ARGV.id, KEYS.record, 'order ' .. ARGV[i], turn_of(published_ms, ARGV.epoch), ARGV.list)
    -- Whoever ends the order lets it go before that. This is for an order that is lost.
    redis.call('ZADD', KEYS.due, now_ms + 3600000, ARGV.id)
    return {'struck', ARGV[i]}
  end
end
local attempt = tonumber(found[3] or 0) + 1
redis.call('ZREM', KEYS.due, ARGV.id)
if found[9] then redis.call('HDEL', KEYS.record, 'resends') end
if found[10] and found[10] ~= '' then redis.call('HSET', KEYS.record, 'used', '') end
redis.call('HSET', KEYS.record, 'state', 'running', 'attempt', attempt, 'since_ms', now_ms,
  'claim', string.format('%s %.0f %s\n%s\n%s', ARGV.pid, now_ms, ARGV.worker, ARGV.token,
    token and string.sub(spent .. ' ' .. token .. ' ', -200) or ''))
local claim = attempt .. ' ' .. ARGV.pid .. ' ' .. ARGV.token
redis.call('HSET', KEYS.claims, ARGV.id, claim)
if is_suspect then
  redis.call('HSET', KEYS.worker, 'suspect', ARGV.id, 'suspect_claim', claim)
end
if tonumber(ARGV.time_to_run_ms) > 0 then
  redis.call('ZADD', KEYS.due, now_ms + ARGV.time_to_run_ms, ARGV.id)
end
local place = found[11] or ''
if place ~= '' then
  -- What is noted may be another's by now: the lock decides. No late attempt of a former life of the id can free it then.
  if redis.call('GET', KEYS.ledger .. 'lock:' .. place) == '0:' .. ARGV.id then
    redis.call('SET', KEYS.ledger .. 'lock:' .. place, attempt .. ':' .. ARGV.id)
  else
    place = ''
  end
end
return {'claimed', attempt, tonumber(found[5] or 0), place}
