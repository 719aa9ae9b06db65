--[[
lock: a publication that is not sent yet takes the object of a unique task. Its attempt takes that over as it is claimed,
if the claim knows of it; all others take theirs by `place`.

Moves     free -> held
          held by the publication of the same id -> held
          held by the value that was seen and whose record is gone -> held
KEYS.lock     lock:<object>   STRING "<attempt>:<id>", or "kept:<id>" with an expiry
KEYS.record   task:<id>       HASH of the id
KEYS.holder   task:<holder>   HASH the record of the id in the value that was seen
ARGV.id
ARGV.attempt: int   0: a publication
ARGV.token    of the attempt's claim; of a publication its epoch
ARGV.seen?    value that an earlier call was answered with; "" for none
ARGV.object   that the record notes, for whatever ends it to free
Returns   {"locked"} | {"locked_by", value} | {"kept_for", task_id} | {"still_stopping", task_id, worker}
          | {"not_current"}
          "locked": also if an attempt of the task has it; "locked_by" by the value that was seen means that its record
          lives; "still_stopping": the task that was seen is over, but what that worker still runs of it has the object;
          "not_current": the record is another's, over or gone, and would leave behind a lock that nobody frees
Cost      O(1)
]]
local mine = ARGV.attempt .. ':' .. ARGV.id
local record = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'token', 'epoch')
local is_his = record[1] == 'running' and record[2] == ARGV.attempt and record[3] == ARGV.token
if ARGV.attempt == '0' then
  -- It may come late: when the task has become a canvas, is a dead letter, or was published anew.
  is_his = record[4] == ARGV.token and record[1] ~= 'dead' and record[1] ~= 'waiting'
end
if not is_his then
  return {'not_current'}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS.record, '')
local value = redis.call('GET', KEYS.lock)
local attempt, id = string.match(value or '', '^(%w+):(.*)$')
local is_over = false
if value and value == ARGV.seen then
  local holder = redis.call('HMGET', KEYS.holder, 'state', 'called_off', 'stopping_on')
  is_over = not holder[1] or holder[1] == 'dead' or holder[2]
  if is_over and holder[3] then
    return {'still_stopping', id, holder[3]}
  end
end
if value and value ~= mine and not is_over then
  if attempt == 'kept' then
    -- Also by the same id: published again, it is another task than the one that succeeded.
    return {'kept_for', id}
  elseif id ~= ARGV.id then
    return {'locked_by', value}
  elseif ARGV.attempt == '0' then
    return {'locked'}
  end
end
redis.call('HSET', KEYS.record, 'object', ARGV.object)
redis.call('SET', KEYS.lock, mine)
return {'locked'}
