--[[
lock: take the lock of one object for one attempt.

Moves     free -> held
          held by an older attempt of the same id -> held   (a redelivered task walks back into its own lock)
          held by the value that was seen and whose record is gone -> held
KEYS[1]   lock   STRING   "<attempt>:<id>"
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   seen     value of a holder whose record is gone or dead; "" for none
Returns   {"locked"} | {"held", value}
Cost      O(1)
]]
local mine = ARGV[2] .. ':' .. ARGV[1]
local value = redis.call('GET', KEYS[1])
if value and value ~= mine and value ~= ARGV[3] then
  local attempt, id = string.match(value, '^(%d+):(.*)$')
  if id ~= ARGV[1] or tonumber(attempt) > tonumber(ARGV[2]) then
    return {'held', value}
  end
end
redis.call('SET', KEYS[1], mine)
return {'locked'}
