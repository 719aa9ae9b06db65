--[[
blame: charge a task with the death of a worker that opened its message. The message had come back from a dead worker.

The task is queued, as nobody has claimed it. If it is buried, its object is freed, unless an attempt of it has still
to be stopped.

If something else that ran in the worker may have killed it, nobody is charged. The next clear death of the message
then counts for this one too.

Moves     queued -> queued   (losses + 1 <= max_losses)
          queued -> dead     (the budget is spent)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   dead     ZSET
KEYS[4]   worker   HASH   whose note is taken away
KEYS[5]   lock     STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   epoch        of the message
ARGV[3]   worker       id; it dies once
ARGV[4]   max_losses   when the task names none
ARGV[5]   due_in_ms    when somebody must look that it is back in its queue
ARGV[6]   cause        for people
ARGV[7]   is_counted   "": the death is charged to nobody
ARGV[8]   object       whose lock is given; "" for none
Returns   {"queued", losses} | {"buried", losses} | {"fenced", state} | {"gone"} | {"object", object}
          "object": it would be buried, its record notes another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'losses', 'max_losses', 'history', 'attempt',
  'blamed', 'suspect', 'revoked', 'openings', 'object', 'stopping')
if not found[1] then
  return {'gone'}
end
if found[7] == ARGV[3] then
  if found[1] == 'dead' then return {'buried', tonumber(found[3])} end
  if found[1] == 'queued' then return {'queued', tonumber(found[3])} end
end
-- A revoked task is called off; it does not become a dead letter.
if found[1] ~= 'queued' or found[2] ~= ARGV[2] or found[9] then
  return {'fenced', found[1]}
end
local losses, openings = tonumber(found[3] or 0), tonumber(found[10] or 0) + 1
if ARGV[7] ~= '' then
  losses, openings = losses + openings, 0
end
local is_buried = losses > tonumber(found[4] or ARGV[4])
local is_freed = is_buried and not found[12]
if is_freed and found[11] and found[11] ~= ARGV[8] then
  return {'object', found[11]}
end
local history = cjson.decode(found[5] or '[]')
history[#history + 1] = {at_ms = now_ms, what = ARGV[7] == '' and 'spared' or 'lost', attempt = tonumber(found[6] or 0),
  cause = ARGV[6], owner = ARGV[3]}
while #history > 20 do table.remove(history, 1) end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[4], 'opening', 'opening_id', 'opening_epoch', 'opening_alone')
redis.call('HSET', KEYS[1], 'losses', losses, 'cause', ARGV[6], 'blamed', ARGV[3],
  'suspect', found[8] or 'opened', 'openings', openings, 'history', cjson.encode(history))
if is_buried then
  -- Whoever reads its message again may die of it too.
  redis.call('HSET', KEYS[1], 'state', 'dead', 'reason', 'lost', 'buried_ms', now_ms, 'owed', '1',
    'sealed', '1')
  redis.call('ZADD', KEYS[3], now_ms, ARGV[1])
  redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
  if is_freed and ARGV[8] ~= '' then
    redis.call('HDEL', KEYS[1], 'object')
    if string.match(redis.call('GET', KEYS[5]) or '', '^%d+:(.*)$') == ARGV[1] then
      redis.call('DEL', KEYS[5])
    end
  end
  return {'buried', losses}
end
redis.call('HSET', KEYS[1], 'sent_ms', now_ms)
redis.call('ZADD', KEYS[2], now_ms + ARGV[5], ARGV[1])
return {'queued', losses}
