--[[
assign: give a member of a run a worker that no other member has, or had with success.

A member that is assigned anew keeps the worker that it had until it is certain that nothing of it begins there: then
the new one is confirmed.

A run that was taken for over, as none of its members had a record just then, is looked at again: a publisher may be
slow, and one member may have ended before the next is published.

KEYS.run                  run:<run>   HASH
KEYS.runs                 runs        ZSET
ARGV.member               id of its task
ARGV.is_confirmed: flag   the one worker is the only one that it has from now on; "": it has none
ARGV.run                  id
ARGV.workers...           ids, the best first
Returns   {"assigned", worker} | {"waits"} | {"absent"}
          "waits": each has another member; "absent": the run is over and forgotten
Cost      O(members of the run), O(log N) in runs if it was taken for over
]]
local before = redis.call('HGET', KEYS.run, ARGV.member)
if not before then
  return {'absent'}
end
if ARGV.is_confirmed == '1' then
  redis.call('HSET', KEYS.run, ARGV.member, ARGV[FIRST.workers])
  return {'assigned', ARGV[FIRST.workers]}
end
if not redis.call('ZSCORE', KEYS.runs, ARGV.run) then
  -- A year: the ledger's user may not have the right to take the expiry away.
  redis.call('PEXPIRE', KEYS.run, 31622400000)
  redis.call('ZADD', KEYS.runs, now_ms, ARGV.run)
end
local taken, fields = {}, redis.call('HGETALL', KEYS.run)
for i = 1, #fields, 2 do
  if fields[i] ~= ARGV.member and string.sub(fields[i], 1, 1) ~= ':' then
    for name in string.gmatch(fields[i + 1], '[^\n]+') do taken[name] = true end
  end
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
