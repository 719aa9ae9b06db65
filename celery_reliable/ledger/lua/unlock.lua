--[[
unlock: free the lock of one object, if this attempt still holds it.

Moves     held by this attempt -> free
          held by an older attempt of the same id -> free   (the task is over)
KEYS[1]   lock     STRING   "<attempt>:<id>"
KEYS[2]   record   HASH     of the id: one that was published anew has the same numbers, and its own object
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   token     of the claim
ARGV[4]   is_over   "1": the task has ended, and what an older attempt holds is freed too
Returns   {"unlocked"} | {"not_held"}
Cost      O(1)
]]
local attempt, id = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):(.*)$')
if id ~= ARGV[1] then
  return {'not_held'}
end
local found = redis.call('HMGET', KEYS[2], 'state', 'token', 'attempt', 'called_off', 'stopping')
if ARGV[4] == '1' then
  local is_over = not found[1] or found[1] == 'dead' or found[4]
  -- What is still to be stopped has the object, though its task is over.
  if tonumber(attempt) > tonumber(ARGV[2]) or not is_over
      or (found[5] and found[5] ~= ARGV[2] .. ' ' .. ARGV[3]) then
    return {'not_held'}
  end
elseif attempt ~= ARGV[2] or (found[2] and found[2] ~= ARGV[3])
    or (found[1] and tonumber(found[3] or 0) < tonumber(ARGV[2])) then
  return {'not_held'}
end
redis.call('DEL', KEYS[1])
return {'unlocked'}
