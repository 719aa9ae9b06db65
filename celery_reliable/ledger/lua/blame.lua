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
KEYS.worker             worker:<worker>   HASH whose note is taken away
ARGV.id
ARGV.epoch              of the message
ARGV.worker             id; it dies once
ARGV.max_losses: int    when the task names none
ARGV.due_in_ms: int     when somebody must look that it is back in its queue
ARGV.cause              for people
ARGV.death              what of that deaths of one kind have in common
ARGV.is_counted: flag   "": the death is charged to nobody
Returns   {"queued", losses: int} | {"spent", losses: int} | {"fenced", state} | {"gone"}
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
local history = longer(found[5], ARGV.is_counted == '' and 'spared' or 'lost', found[6], ARGV.cause, nil, ARGV.worker)
redis.call('HDEL', KEYS.worker, 'opening', 'opening_id', 'opening_epoch', 'opening_alone')
redis.call('HSET', KEYS.record, 'losses', losses, 'blamed', ARGV.worker,
  'suspect', found[8] or 'opened', 'openings', openings, 'history', history)
if is_buried then
  -- Whoever reads its message again may die of it too.
  make_letter(KEYS.record, ARGV.id, true, not still_stopping(KEYS.record, found[12]) and found[11], ARGV.death, '',
    'lost', ARGV.cause, 'sealed', '1')
  return {'spent', losses}
end
redis.call('HSET', KEYS.record, 'since_ms', now_ms)
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
return {'queued', losses}
