--[[
blame: charge a task with the death of a worker that opened its message. The message had come back from a dead worker.

The task is queued, as nobody has claimed it. If it is buried, its object is freed, unless an attempt of it has still
to be stopped.

If something else that ran in the worker may have killed it, nobody is charged. The next clear death of the message
then counts for this one too.

Moves     queued -> queued   (losses + 1 <= max_losses)
          queued -> dead     (the budget is spent)
          held by this task -> free
KEYS.record             task:<id>         HASH
KEYS.due                due               ZSET
KEYS.dead               dead              ZSET
KEYS.worker             worker:<worker>   HASH whose note is taken away
KEYS.lock               lock:<object>     STRING of the object
KEYS.clock              clock             HASH
ARGV.id
ARGV.epoch              of the message
ARGV.worker             id; it dies once
ARGV.max_losses: int    when the task names none
ARGV.due_in_ms: int     when somebody must look that it is back in its queue
ARGV.cause              for people
ARGV.is_counted: flag   "": the death is charged to nobody
ARGV.object?            whose lock is given; "" for none
Returns   {"queued", losses: int} | {"spent", losses: int} | {"fenced", state} | {"gone"}
          | {"other_object", object_key}
          "other_object": it would be buried, its record notes another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'losses', 'max_losses', 'history', 'attempt',
  'blamed', 'suspect', 'revoked', 'openings', 'object', 'stopping')
if not found[1] then
  return {'gone'}
end
if found[7] == ARGV.worker then
  if found[1] == 'dead' then return {'spent', tonumber(found[3])} end
  if found[1] == 'queued' then return {'queued', tonumber(found[3])} end
end
-- A revoked task is called off; it does not become a dead letter.
if found[1] ~= 'queued' or found[2] ~= ARGV.epoch or found[9] then
  return {'fenced', found[1]}
end
local losses, openings = tonumber(found[3] or 0), tonumber(found[10] or 0) + 1
if ARGV.is_counted ~= '' then
  losses, openings = losses + openings, 0
end
local is_buried = losses > tonumber(found[4] or ARGV.max_losses)
local is_freed = is_buried and not found[12]
if is_freed and found[11] and found[11] ~= ARGV.object then
  return {'other_object', found[11]}
end
local history = cjson.decode(found[5] or '[]')
history[#history + 1] = {at_ms = now_ms, what = ARGV.is_counted == '' and 'spared' or 'lost',
  attempt = tonumber(found[6] or 0),
  cause = ARGV.cause, owner = ARGV.worker}
while #history > 20 do table.remove(history, 1) end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS.worker, 'opening', 'opening_id', 'opening_epoch', 'opening_alone')
redis.call('HSET', KEYS.record, 'losses', losses, 'cause', ARGV.cause, 'blamed', ARGV.worker,
  'suspect', found[8] or 'opened', 'openings', openings, 'history', cjson.encode(history))
if is_buried then
  -- Whoever reads its message again may die of it too.
  redis.call('HSET', KEYS.record, 'state', 'dead', 'reason', 'lost', 'buried_ms', now_ms, 'owed', '1',
    'sealed', '1')
  redis.call('ZADD', KEYS.dead, now_ms, ARGV.id)
  redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
  if is_freed and ARGV.object ~= '' then
    redis.call('HDEL', KEYS.record, 'object')
    if string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
      redis.call('DEL', KEYS.lock)
    end
  end
  return {'spent', losses}
end
redis.call('HSET', KEYS.record, 'sent_ms', now_ms)
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
return {'queued', losses}
