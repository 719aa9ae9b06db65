--[[
lock: take the lock of one object for one attempt, or for a publication that is not sent yet.

Moves     free -> held
          held by an older attempt of the same id -> held   (a redelivered task walks back into its own lock)
          held by the value that was seen and whose record is gone -> held
KEYS.lock           lock:<object>   STRING "<attempt>:<id>", or "kept:<id>" with an expiry
KEYS.record         task:<id>       HASH of the id
KEYS.holder         task:<holder>   HASH the record of the id in the value that was seen
KEYS.other          lock:<own>      STRING the lock of that own object
ARGV.id
ARGV.attempt: int   0: a publication
ARGV.seen?          value that an earlier call was answered with; "" for none
ARGV.token          of the attempt's claim; of a publication its epoch
ARGV.object         that the record notes, for whatever ends it to free
ARGV.own?           object that an earlier call was answered with; "" for none
Returns   {"locked"} | {"locked_by", value} | {"kept_for", task_id} | {"stopping", worker} | {"not_current"}
          | {"own_place", object_key}
          "locked_by" by the value that was seen means that its record lives; "stopping": the task that was seen is
          over, but what that worker still runs of it has the object; "not_current": whose record is not his, over or
          gone, would leave behind a lock that nobody frees; "own_place": the record notes another place of that object,
          as it had several before; its lock is needed, and kept if the task still has it
Cost      O(1)
]]
local mine = ARGV.attempt .. ':' .. ARGV.id
local record = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'token', 'epoch', 'object')
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
local own = record[5] or ''
if ARGV.attempt ~= '0' and string.sub(own, 1, #ARGV.object + 1) == ARGV.object .. '#'
    and string.match(own, '^%d+$', #ARGV.object + 2) then
  if own ~= ARGV.own then
    return {'own_place', own}
  end
  if string.match(redis.call('GET', KEYS.other) or '', '^%d+:(.*)$') == ARGV.id then
    -- Nobody else would ever ask for that place, so its lock would stay for ever.
    redis.call('SET', KEYS.other, mine)
    return {'locked'}
  end
end
local value = redis.call('GET', KEYS.lock)
local is_over = false
if value and value == ARGV.seen then
  local holder = redis.call('HMGET', KEYS.holder, 'state', 'called_off', 'stopping_on')
  is_over = not holder[1] or holder[1] == 'dead' or holder[2]
  if is_over and holder[3] then
    return {'stopping', holder[3]}
  end
end
if value and value ~= mine and not is_over then
  local attempt, id = string.match(value, '^(%w+):(.*)$')
  if attempt == 'kept' then
    -- Also by the same id: published again, it is another task than the one that succeeded.
    return {'kept_for', id}
  elseif id ~= ARGV.id then
    return {'locked_by', value}
  elseif ARGV.attempt == '0' and tonumber(attempt) > 0 then
    return {'locked'}
  end
end
redis.call('HSET', KEYS.record, 'object', ARGV.object)
redis.call('SET', KEYS.lock, mine)
return {'locked'}
