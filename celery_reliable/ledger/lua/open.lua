--[[
open: a worker is about to open a message that came back from a dead worker, and may die of it.

The worker notes whose its death would be. There are two cases in which that would not be clear, and the message waits:
a suspect has just begun in the worker, and may be about to kill it; or a worker died when it opened the message
before, and something runs here that ran in a worker that died.

When the worker has survived, it has the note removed. It may not know whether there is one.

KEYS.record            task:<id>         HASH
KEYS.worker            worker:<worker>   HASH
KEYS.claims            claims:<worker>   HASH of that worker
ARGV.id                of the task; "" for a message that tells none
ARGV.epoch             of the message; "" when it carries none
ARGV.delivery          names this delivery of the message
ARGV.begun_ms: int     so long ago a suspect has just begun
ARGV.alone_ms: int     after about so long a message that waits is sent again
ARGV.max_losses: int   when the task names none; where no loss is allowed, the first death has to be clear
ARGV.is_over: flag     the message was opened, and the worker lives
Returns   {"opening"} | {"alone"} | {"dead"} | {"no_lease"} | {"opened"}
          "alone": it is not to be opened, as it is sent again from its record; "no_lease": nothing was noted
Cost      O(log N) in records that are due some time
]]
if ARGV.is_over == '1' then
  if redis.call('HGET', KEYS.worker, 'opening') == ARGV.delivery then
    redis.call('HDEL', KEYS.worker, 'opening', 'opening_id', 'opening_epoch', 'opening_alone')
  end
  return {'opened'}
end
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'suspect', 'waiting_for', 'openings', 'max_losses')
if found[1] == 'dead' then
  return {'dead'}
elseif found[2] == ARGV.epoch and found[4] == 'alone' then
  return {'alone'}
end
local worker = redis.call('HMGET', KEYS.worker, 'state', 'suspect', 'suspect_claim', 'suspect_ms', 'spared_claims')
if worker[1] ~= 'alive' then
  return {'no_lease'}
end
local is_queued = found[1] == 'queued' and found[2] == ARGV.epoch
local has_to_be_clear = is_queued and (found[5] or tonumber(found[6] or ARGV.max_losses) == 0)
local runs_suspect = worker[2] and redis.call('HGET', KEYS.claims, worker[2]) == worker[3]
local runs_spared = false
if has_to_be_clear and worker[5] then
  for id, claim in pairs(cjson.decode(worker[5])) do
    runs_spared = runs_spared or redis.call('HGET', KEYS.claims, id) == claim
  end
end
if runs_suspect or runs_spared then
  local age_ms = now_ms - (worker[4] or 0)
  local has_just_begun = runs_suspect and age_ms >= 0 and age_ms < tonumber(ARGV.begun_ms)
  if is_queued and (has_just_begun or has_to_be_clear or found[3] == 'ran') then
    redis.call('HSET', KEYS.record, 'suspect', found[3] or 'opened')
    put_off()
    return {'alone'}
  end
  if has_just_begun then
    -- Without a record it could not be sent again, so it is opened now.
    return {'opening'}
  end
end
redis.call('HSET', KEYS.worker, 'opening', ARGV.delivery, 'opening_id', ARGV.id, 'opening_epoch', ARGV.epoch,
  'opening_alone', has_to_be_clear and '1' or '')
return {'opening'}
