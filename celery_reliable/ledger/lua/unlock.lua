--[[
unlock: free the lock of one object, if this attempt still holds it.

Moves     held by this attempt -> free
          held by an older attempt of the same id -> free   (the task is over)
KEYS[1]   lock   STRING   "<attempt>:<id>"
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   oldest   attempt whose lock is freed too
Returns   {"unlocked"} | {"not_held"}
Cost      O(1)
]]
local attempt, id = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):(.*)$')
if id ~= ARGV[1] or tonumber(attempt) > tonumber(ARGV[2]) or tonumber(attempt) < tonumber(ARGV[3]) then
  return {'not_held'}
end
redis.call('DEL', KEYS[1])
return {'unlocked'}
