--[[
claim: begin an attempt, or say why not.

Moves     queued -> running(attempt + 1)
          absent -> running(1)   (published by somebody without the package, or before records were lost)
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   meta     HASH
KEYS[4]   worker   HASH
KEYS[5]   claims   HASH   of that worker
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
Returns   {"claimed", attempt, losses} | {"held", owner} | {"stale"} | {"parked"} | {"ended"}
          | {"dead"} | {"no_lease"} | {"unrecorded"}
          "held" also while a worker that lives has not yet stopped an attempt that was taken from it; then
          the record is due, as this message is dropped
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'attempt', 'token', 'owner', 'losses',
  'stopping_on')
local state = found[1]
if state == 'running' then
  if found[4] == ARGV[5] then
    return {'claimed', tonumber(found[3]), tonumber(found[6] or 0)}
  end
  return {'held', found[5]}
end
if state == 'dead' then
  return {'dead'}
end
if redis.call('HGET', KEYS[4], 'state') ~= 'alive' then
  return {'no_lease'}
end
if not state then
  local latest_ms = now_ms + 86400000
  -- What claims to be of the future proves nothing, and is not counted on from.
  if ARGV[3] ~= '' and tonumber(ARGV[3]) <= latest_ms then
    local info = redis.pcall('INFO', 'server')
    local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
    local meta = redis.call('HMGET', KEYS[3], 'generation', 'run_id')
    local generation = meta[1] and tonumber(meta[1]) <= latest_ms and meta[1]
    if not generation or run_id == '' or run_id ~= meta[2] then
      -- Of the time, as in begin_pass.
      generation = string.format('%.0f', math.max(now_ms, tonumber(generation or 0) + 1, tonumber(ARGV[3]) + 1))
      redis.call('HSET', KEYS[3], 'generation', generation, 'run_id', run_id)
    end
    if generation == ARGV[3] then
      return {'ended'}
    end
  end
  if ARGV[10] == '' then
    return {'unrecorded'}
  end
  redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'message', ARGV[10], 'name', ARGV[8],
    'published_ms', now_ms)
  if ARGV[9] ~= '' then
    redis.call('HSET', KEYS[1], 'max_losses', ARGV[9])
  end
elseif found[2] ~= ARGV[2] or state == 'waiting' then
  return {'stale'}
elseif state == 'parked' then
  return {'parked'}
elseif found[7] then
  redis.call('ZADD', KEYS[2], 'XX', 'LT', now_ms, ARGV[1])
  return {'held', found[7]}
end
local attempt = tonumber(found[3] or 0) + 1
redis.call('HSET', KEYS[1], 'state', 'running', 'attempt', attempt, 'owner', ARGV[4],
  'token', ARGV[5], 'pid', ARGV[6], 'claimed_ms', now_ms)
redis.call('HDEL', KEYS[1], 'resends', 'unsent')
redis.call('HSET', KEYS[5], ARGV[1], attempt .. ' ' .. ARGV[6] .. ' ' .. ARGV[5])
if tonumber(ARGV[7]) > 0 then
  redis.call('ZADD', KEYS[2], now_ms + ARGV[7], ARGV[1])
else
  redis.call('ZREM', KEYS[2], ARGV[1])
end
return {'claimed', attempt, tonumber(found[6] or 0)}
