--[[
group: bring the index of dead letters by group up to date, for the ids that are given.

The dead letters are the truth. The index may lack some of them and may name some that are gone, until somebody looks.

KEYS[1]   dead      ZSET
KEYS[2]   grouped   ZSET
KEYS[3]   groups    HASH
ARGV[1]   added     up to where all dead letters have been looked at, as the caller writes it; "" for no change
ARGV[2]   checked   up to where all members of the index have been; "" for no change
ARGV[3...]   two for each letter: its member of the index, and what its group has in common; "" to have the member
             removed in any case
Returns   {"grouped", added, removed}
Cost      O(log N) in dead letters for each that is named
]]
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[3], '')
local added, removed, told, left = 0, 0, {}, {}
for i = 3, #ARGV, 2 do
  local member, about = ARGV[i], ARGV[i + 1]
  local group, buried_ms, id = string.match(member, '^(%x+) (%d+) (.*)$')
  local score = group and about ~= '' and redis.call('ZSCORE', KEYS[1], id)
  if score and tonumber(score) == tonumber(buried_ms) then
    added = added + redis.call('ZADD', KEYS[2], 0, member)
    told[group] = about
  else
    removed = removed + redis.call('ZREM', KEYS[2], member)
    left[string.match(member, '^%S*')] = true
  end
end
for group, about in pairs(told) do
  redis.call('HSET', KEYS[3], group, about)
end
for group in pairs(left) do
  if redis.call('ZLEXCOUNT', KEYS[2], '[' .. group .. ' ', '(' .. group .. '!') == 0 then
    redis.call('HDEL', KEYS[3], group)
  end
end
if ARGV[1] ~= '' then
  redis.call('HSET', KEYS[3], 'added', ARGV[1])
end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[3], 'checked', ARGV[2])
end
return {'grouped', added, removed}
