--[[
assign: give a member of a run a worker that no other member has, or had with success.

A member that is assigned anew keeps the worker that it had until it is certain that nothing of it begins there: then
the new one is confirmed.

A run that was taken for over, as none of its members had a record just then, is looked at again: a publisher may be
slow, and one member may have ended before the next is published.

KEYS.run          run:<run>   HASH
KEYS.runs         runs        ZSET
ARGV.member       id of its task
ARGV.confirmed    the only worker that it has from now on; "-" for none; "": one is to be chosen
ARGV.run          id
ARGV.workers...   of workers, the best first
Returns   {"assigned", worker} | {"waits"} | {"absent"}
          "waits": each has another member; "absent": the run is over and forgotten
Cost      O(members of the run), O(log N) in runs if it was taken for over
]]
local before = redis.call('HGET', KEYS.run, ARGV.member)
if not before then
  return {'absent'}
end
if ARGV.confirmed ~= '' then
  local worker = ARGV.confirmed == '-' and '' or ARGV.confirmed
  redis.call('HSET', KEYS.run, ARGV.member, worker)
  return {'assigned', worker}
end
local taken, field, is_over = {}, '', false
for i, value in ipairs(redis.call('HGETALL', KEYS.run)) do
  if i % 2 == 1 then
    field = value
    is_over = is_over or value == ':over'
  elseif field ~= ARGV.member and string.sub(field, 1, 1) ~= ':' then
    for name in string.gmatch(value, '[^\n]+') do taken[name] = true end
  end
end
if is_over then
  redis.call('HDEL', KEYS.run, ':over')
  -- A year: the ledger's user may not have the right to take the expiry away.
  redis.call('PEXPIRE', KEYS.run, 31622400000)
  redis.call('ZADD', KEYS.runs, now_ms, ARGV.run)
end
for i = FIRST.workers, #ARGV do
  if not taken[ARGV[i]] then
    local names = ARGV[i]
    for name in string.gmatch(before, '[^\n]+') do
      if name ~= ARGV[i] then names = names .. '\n' .. name end
    end
    redis.call('HSET', KEYS.run, ARGV.member, names)
    return {'assigned', ARGV[i]}
  end
end
return {'waits'}
