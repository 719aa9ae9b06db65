--[[
lock: take the lock of one object for one attempt, or for a publication that is not sent yet.

Moves     free -> held
          held by an older attempt of the same id -> held   (a redelivered task walks back into its own lock)
          held by the value that was seen and whose record is gone -> held
          kept by the same id -> held   (its attempt was lost between its success and its settlement)
KEYS[1]   lock     STRING   "<attempt>:<id>", or "kept:<id>" with an expiry
KEYS[2]   record   HASH     of the id
KEYS[3]   holder   HASH     the record of the id in the value that was seen
ARGV[1]   id
ARGV[2]   attempt  0: a publication
ARGV[3]   seen     value that an earlier call was answered with; "" for none
Returns   {"locked"} | {"held", value} | {"kept", id}
          "held" by the value that was seen means that its record lives
Cost      O(1)
]]
local mine = ARGV[2] .. ':' .. ARGV[1]
local value = redis.call('GET', KEYS[1])
local is_over = false
if value and value == ARGV[3] then
  local state = redis.call('HGET', KEYS[3], 'state')
  is_over = not state or state == 'dead'
end
if value and value ~= mine and not is_over then
  local attempt, id = string.match(value, '^(%w+):(.*)$')
  if attempt == 'kept' then
    -- An id that is published anew is not the one that succeeded.
    if id ~= ARGV[1] or not redis.call('HGET', KEYS[2], 'kept') then
      return {'kept', id}
    end
  elseif id ~= ARGV[1] then
    return {'held', value}
  elseif tonumber(attempt) > tonumber(ARGV[2]) then
    if ARGV[2] == '0' then
      return {'locked'}
    end
    -- The numbers of an id that was published anew begin at 1 again.
    if redis.call('HGET', KEYS[2], 'attempt') ~= ARGV[2] then
      return {'held', value}
    end
  end
end
redis.call('SET', KEYS[1], mine)
return {'locked'}
