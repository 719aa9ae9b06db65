--[[
lose: an attempt is over without an outcome. If the task is buried for that, its object is freed, unless the attempt
has still to be stopped.

Moves     running(attempt) -> queued   (losses + 1 <= max_losses; or its worker was stopped on purpose)
          running(attempt) -> dead     (the budget is spent)
          held by this task -> free
KEYS.record             task:<id>         HASH
KEYS.due                due               ZSET
KEYS.claims             claims:<worker>   HASH of the attempt's worker
KEYS.taken              taken:<worker>    HASH of the attempt's worker
ARGV.id
ARGV.attempt: int
ARGV.cause?             "child_lost", "worker_lost", "stuck", ...; "": its worker was stopped on purpose, so no loss is
                        counted, and none is told
ARGV.max_losses: int    when the task names none
ARGV.due_in_ms: int     when somebody must look that it is back in its queue
ARGV.token              of the claim
ARGV.is_taken: flag     "1": the worker may still run it and has to be told; taken as stuck, from a worker that lives,
                        it can be claimed again when that worker has stopped it or is declared dead
ARGV.due_ms?            that was seen, when that is why it is lost; else ""
ARGV.is_unsent: flag    "1": no message of it comes back to its queue; it has to be sent from the record
ARGV.is_counted: flag   "": its worker's death is charged to another task, or to nobody
ARGV.is_death?          "1": it ran in a worker that died. The first such death that is charged to nobody has no
                        consequence, as it may well be the machine's; after the second the task is a suspect, and who
                        is charged then is charged with all but the first. "2": a suspect ran there too, and is
                        charged; whoever was beside it is a suspect at once, as it may be wronged
ARGV.detail?            of the cause, for people; "" for none
ARGV.death?             the cause and what of its detail deaths of one kind have in common
Returns   {"queued", losses: int} | {"spent", losses: int} | {"fenced", state} | {"gone"} | {"changed"}
          a task that was revoked as it ran is queued, not to run but to be called off
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim', 'losses', 'max_losses',
  'history', 'revoked', 'deaths', 'object')
local refused = refusal(unpack(found, 1, 3))
if refused then
  drop_claim()
  if found[2] == ARGV.attempt and is_spent(found[3]) then
    if found[1] == 'dead' then return {'spent', tonumber(found[4] or 0)} end
    if found[1] == 'queued' then return {'queued', tonumber(found[4] or 0)} end
  end
  return refused
end
if ARGV.due_ms ~= '' and redis.call('ZSCORE', KEYS.due, ARGV.id) ~= ARGV.due_ms then
  return {'changed'}
end
local cause = ARGV.detail == '' and ARGV.cause or ARGV.cause .. ': ' .. ARGV.detail
local is_death, spared, suspect = ARGV.is_death ~= '', string.match(found[8] or '0', '^(%d+)(.*)$')
spared = tonumber(spared)
local losses, max_losses = tonumber(found[4] or 0), tonumber(found[5] or ARGV.max_losses)
if ARGV.is_counted ~= '' then
  losses = losses + (is_death and math.max(1, spared) or 1)
end
local is_buried = ARGV.is_counted ~= '' and not found[7] and losses > max_losses
local is_stopping = ARGV.is_taken == '1' and ARGV.cause == 'stuck'
redis.call('HDEL', KEYS.claims, ARGV.id)
if ARGV.cause ~= '' then
  redis.call('HSET', KEYS.record, 'losses', losses, 'history',
    longer(found[6], ARGV.is_counted == '' and 'spared' or 'lost', ARGV.attempt, cause, found[3]))
end
if ARGV.is_taken == '1' then
  redis.call('HSET', KEYS.taken, ARGV.id, ARGV.attempt .. ' ' .. ARGV.token)
  if is_stopping then
    redis.call('HSET', KEYS.record, 'claim', with_note(found[3], 'stopping', ''))
  end
end
if is_death then
  if ARGV.is_counted ~= '' then
    spared = math.min(spared, 1)
  elseif ARGV.is_death == '1' then
    spared = spared + 1
  end
  -- If no loss is allowed, one such death is enough: the next one must show which task is to blame.
  if ARGV.is_death == '2' or spared + losses >= math.min(2, max_losses + 1) then suspect = ' suspect' end
  redis.call('HSET', KEYS.record, 'deaths', spared .. suspect)
end
if is_buried then
  make_letter(KEYS.record, ARGV.id, true, not is_stopping and found[9], ARGV.death, '', 'lost', cause)
  return {'spent', losses}
end
redis.call('HSET', KEYS.record, 'state', 'queued', 'since_ms', now_ms)
if ARGV.is_unsent == '1' then
  redis.call('HSET', KEYS.record, 'resends', 'unsent')
end
-- What was revoked is called off by the next look.
redis.call('ZADD', KEYS.due, now_ms + (found[7] and ARGV.cause ~= 'stuck' and 0 or ARGV.due_in_ms), ARGV.id)
return {'queued', losses}
