--[[
lock: take the lock of one object for one attempt, or for a publication that is not sent yet.

Moves     free -> held
          held by an older attempt of the same id -> held   (a redelivered task walks back into its own lock)
          held by the value that was seen and whose record is gone -> held
KEYS[1]   lock     STRING   "<attempt>:<id>", or "kept:<id>" with an expiry
KEYS[2]   record   HASH     of the id
KEYS[3]   holder   HASH     the record of the id in the value that was seen
KEYS[4]   other    STRING   the lock of that own object; "none" for none
ARGV[1]   id
ARGV[2]   attempt  0: a publication
ARGV[3]   seen     value that an earlier call was answered with; "" for none
ARGV[4]   token    of the attempt's claim; of a publication its epoch
ARGV[5]   object   that the record notes, for whatever ends it to free
ARGV[6]   own      object that an earlier call was answered with; "" for none
Returns   {"locked"} | {"held", value} | {"kept", id} | {"stopping", worker} | {"fenced"} | {"object", object}
          "held" by the value that was seen means that its record lives; "stopping": the task that was seen is
          over, but what that worker still runs of it has the object; "fenced": whose record is not his, over or
          gone, would leave behind a lock that nobody frees; "object": the record notes another place of that object,
          as it had several before; its lock is needed, and kept if the task still has it
Cost      O(1)
]]
local mine = ARGV[2] .. ':' .. ARGV[1]
local record = redis.call('HMGET', KEYS[2], 'state', 'attempt', 'token', 'epoch', 'object')
local is_his = record[1] == 'running' and record[2] == ARGV[2] and record[3] == ARGV[4]
if ARGV[2] == '0' then
  -- It may come late: when the task has become a canvas, is a dead letter, or was published anew.
  is_his = record[4] == ARGV[4] and record[1] ~= 'dead' and record[1] ~= 'waiting'
end
if not is_his then
  return {'fenced'}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[2], '')
local own = record[5] or ''
if ARGV[2] ~= '0' and string.sub(own, 1, #ARGV[5] + 1) == ARGV[5] .. '#'
    and string.match(own, '^%d+$', #ARGV[5] + 2) then
  if own ~= ARGV[6] then
    return {'object', own}
  end
  if string.match(redis.call('GET', KEYS[4]) or '', '^%d+:(.*)$') == ARGV[1] then
    -- Nobody else would ever ask for that place, so its lock would stay for ever.
    redis.call('SET', KEYS[4], mine)
    return {'locked'}
  end
end
local value = redis.call('GET', KEYS[1])
local is_over = false
if value and value == ARGV[3] then
  local holder = redis.call('HMGET', KEYS[3], 'state', 'called_off', 'stopping_on')
  is_over = not holder[1] or holder[1] == 'dead' or holder[2]
  if is_over and holder[3] then
    return {'stopping', holder[3]}
  end
end
if value and value ~= mine and not is_over then
  local attempt, id = string.match(value, '^(%w+):(.*)$')
  if attempt == 'kept' then
    -- Also by the same id: published again, it is another task than the one that succeeded.
    return {'kept', id}
  elseif id ~= ARGV[1] then
    return {'held', value}
  elseif ARGV[2] == '0' and tonumber(attempt) > 0 then
    return {'locked'}
  end
end
redis.call('HSET', KEYS[2], 'object', ARGV[5])
redis.call('SET', KEYS[1], mine)
return {'locked'}
