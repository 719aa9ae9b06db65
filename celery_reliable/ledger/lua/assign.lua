--[[
assign: give a member of a run a worker that no other member has, or had with success.

A member that is assigned anew keeps the worker that it had until it is certain that nothing of it begins there: then
the new one is confirmed.

KEYS[1]   run   HASH
ARGV[1]   member      id of its task
ARGV[2]   confirmed   the only worker that it has from now on; "-" for none; "": one is to be chosen
ARGV[3...] names of workers, the best first
Returns   {"assigned", worker} | {"waits"} | {"absent"}
          "waits": each has another member; "absent": the run is over and forgotten
Cost      O(members of the run)
]]
local before = redis.call('HGET', KEYS[1], ARGV[1])
if not before then
  return {'absent'}
end
if ARGV[2] ~= '' then
  local worker = ARGV[2] == '-' and '' or ARGV[2]
  redis.call('HSET', KEYS[1], ARGV[1], worker)
  return {'assigned', worker}
end
local taken, field = {}, ''
for i, value in ipairs(redis.call('HGETALL', KEYS[1])) do
  if i % 2 == 1 then
    field = value
  elseif field ~= ARGV[1] and string.sub(field, 1, 1) ~= ':' then
    for name in string.gmatch(value, '[^\n]+') do taken[name] = true end
  end
end
for i = 3, #ARGV do
  if not taken[ARGV[i]] then
    local names = ARGV[i]
    for name in string.gmatch(before, '[^\n]+') do
      if name ~= ARGV[i] then names = names .. '\n' .. name end
    end
    redis.call('HSET', KEYS[1], ARGV[1], names)
    return {'assigned', ARGV[i]}
  end
end
return {'waits'}
