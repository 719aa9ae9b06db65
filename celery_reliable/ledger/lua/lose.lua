--[[
lose: an attempt is over without an outcome. If the task is buried for that, its object is freed, unless the attempt
has still to be stopped.

Moves     running(attempt) -> queued   (losses + 1 <= max_losses)
          running(attempt) -> dead     (the budget is spent)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   claims   HASH   of the attempt's worker
KEYS[4]   taken    HASH   of the attempt's worker
KEYS[5]   dead     ZSET
KEYS[6]   lock     STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   cause        "child_lost", "worker_lost", "stuck", ...
ARGV[4]   max_losses   when the task names none
ARGV[5]   due_in_ms    when somebody must look that it is back in its queue
ARGV[6]   token        of the claim
ARGV[7]   is_taken     "1": the worker may still run it and has to be told; taken as stuck, from a worker that
                       lives, it can be claimed again when that worker has stopped it or is declared dead
ARGV[8]   due_ms       that was seen, when that is why it is lost; else ""
ARGV[9]   is_unsent    "1": no message of it comes back to its queue; it has to be sent from the record
ARGV[10]  is_counted   "": its worker's death is charged to another task, or to nobody
ARGV[11]  is_death     "1": it ran in a worker that died.  The first such death that is charged to nobody has no
                       consequence, as it may well be the machine's; after the second the task is a suspect, and
                       who is charged then is charged with all but the first.  "2": a suspect ran there too, and
                       is charged; whoever was beside it is a suspect at once, as it may be wronged
ARGV[12]  detail       of the cause, for people; "" for none
ARGV[13]  object       whose lock is given; "" for none
Returns   {"queued", losses} | {"buried", losses} | {"fenced", state} | {"gone"} | {"changed"} | {"object", object}
          a task that was revoked as it ran is queued, not to run but to be called off; "object": it would be
          buried, its record notes another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'ended', 'losses', 'max_losses',
  'history', 'owner', 'token', 'revoked', 'spent', 'spared', 'object', 'pid', 'claimed_ms',
  'next_epoch')
if found[1] ~= 'running' or found[2] ~= ARGV[2] or found[8] ~= ARGV[6] then
  -- The attempt ended another way; its claim must not keep its worker from being forgotten.
  local claim = redis.call('HGET', KEYS[3], ARGV[1])
  if claim and string.match(claim, '^(%d+) ') == ARGV[2] and string.match(claim, ' (%S+)$') == ARGV[6] then
    redis.call('HDEL', KEYS[3], ARGV[1])
  end
  if not found[1] then
    return {'gone'}
  end
  if found[3] == ARGV[2] and found[2] == ARGV[2] then
    if found[1] == 'dead' then return {'buried', tonumber(found[4] or 0)} end
    if found[1] == 'queued' then return {'queued', tonumber(found[4] or 0)} end
  end
  return {'fenced', found[1]}
end
if ARGV[8] ~= '' and redis.call('ZSCORE', KEYS[2], ARGV[1]) ~= ARGV[8] then
  return {'changed'}
end
local cause = ARGV[12] == '' and ARGV[3] or ARGV[3] .. ': ' .. ARGV[12]
local is_death, spared = ARGV[11] ~= '', tonumber(found[11] or 0)
local losses, max_losses = tonumber(found[4] or 0), tonumber(found[5] or ARGV[4])
if ARGV[10] ~= '' then
  losses = losses + (is_death and math.max(1, spared) or 1)
end
local is_buried = ARGV[10] ~= '' and not found[9] and losses > max_losses
local is_stopping = ARGV[7] == '1' and ARGV[3] == 'stuck'
local is_freed = is_buried and not is_stopping
if is_freed and found[12] and found[12] ~= ARGV[13] then
  return {'object', found[12]}
end
local history = cjson.decode(found[6] or '[]')
history[#history + 1] = {at_ms = now_ms, what = ARGV[10] == '' and 'spared' or 'lost',
  attempt = tonumber(ARGV[2]), cause = cause, owner = found[7], pid = tonumber(found[13]),
  claimed_ms = tonumber(found[14])}
while #history > 20 do table.remove(history, 1) end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], 'owner', 'token', 'pid', 'claimed_ms', 'heir')
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[1], 'losses', losses, 'ended', ARGV[2], 'cause', cause,
  'history', cjson.encode(history), 'spent', string.sub((found[10] or ' ') .. ARGV[6] .. ' ', -200))
if ARGV[7] == '1' then
  redis.call('HSET', KEYS[4], ARGV[1], ARGV[2] .. ' ' .. ARGV[6])
  if is_stopping then
    redis.call('HSET', KEYS[1], 'stopping', ARGV[2] .. ' ' .. ARGV[6], 'stopping_on', found[7])
  end
end
if is_death then
  if ARGV[10] ~= '' then
    spared = math.min(spared, 1)
  elseif ARGV[11] == '1' then
    spared = spared + 1
  end
  redis.call('HSET', KEYS[1], 'spared', spared)
  -- If no loss is allowed, one such death is enough: the next one must show which task is to blame.
  if ARGV[11] == '2' or spared + losses >= math.min(2, max_losses + 1) then
    redis.call('HSET', KEYS[1], 'suspect', 'ran')
  end
end
if is_buried then
  redis.call('HSET', KEYS[1], 'state', 'dead', 'reason', 'lost', 'buried_ms', now_ms, 'owed', '1')
  redis.call('ZADD', KEYS[5], now_ms, ARGV[1])
  redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
  if is_freed and ARGV[13] ~= '' then
    redis.call('HDEL', KEYS[1], 'object')
    if string.match(redis.call('GET', KEYS[6]) or '', '^%d+:(.*)$') == ARGV[1] then
      redis.call('DEL', KEYS[6])
    end
  end
  return {'buried', losses}
end
redis.call('HSET', KEYS[1], 'state', 'queued', 'sent_ms', now_ms)
if found[15] then
  -- An operator has named other workers: the message that comes back is stale, and the record's is sent.
  redis.call('HDEL', KEYS[1], 'moved', 'next_epoch')
  redis.call('HSET', KEYS[1], 'epoch', found[15])
end
if ARGV[9] == '1' or found[15] then
  redis.call('HSET', KEYS[1], 'unsent', '1')
end
-- What was revoked is called off by the next look.
redis.call('ZADD', KEYS[2], now_ms + ((found[9] or found[15]) and ARGV[3] ~= 'stuck' and 0 or ARGV[5]), ARGV[1])
return {'queued', losses}
