--[[
group: bring the index of dead letters by group up to date, for the ids that are given.

The dead letters are the truth. The index may lack some of them and may name some that are gone, until somebody looks.

KEYS.dead         dead      ZSET
KEYS.grouped      grouped   ZSET
KEYS.groups       groups    HASH
ARGV.added: bytes        up to where all dead letters have been looked at, as the caller writes it; "" for no change
ARGV.checked: bytes      up to where all members of the index have been; "" for no change
ARGV.letters...   two for each letter: its member of the index, and what its group has in common; "" to have the
                  member removed in any case
Returns   {"grouped", added: int, removed: int}
Cost      O(log N) in dead letters for each that is named
]]
local added, removed, told, left = 0, 0, {}, {}
for i = FIRST.letters, #ARGV, 2 do
  local member, about = ARGV[i], ARGV[i + 1]
  local group, buried_ms, id = string.match(member, '^(%x+) (%d+) (.*)$')
  local score = group and about ~= '' and redis.call('ZSCORE', KEYS.dead, id)
  if score and tonumber(score) == tonumber(buried_ms) then
    added = added + redis.call('ZADD', KEYS.grouped, 0, member)
    told[group] = about
  else
    removed = removed + redis.call('ZREM', KEYS.grouped, member)
    left[string.match(member, '^%S*')] = true
  end
end
for group, about in pairs(told) do
  redis.call('HSET', KEYS.groups, group, about)
end
for group in pairs(left) do
  if redis.call('ZLEXCOUNT', KEYS.grouped, '[' .. group .. ' ', '(' .. group .. '!') == 0 then
    redis.call('HDEL', KEYS.groups, group)
  end
end
if ARGV.added ~= '' then
  redis.call('HSET', KEYS.groups, 'added', ARGV.added)
end
if ARGV.checked ~= '' then
  redis.call('HSET', KEYS.groups, 'checked', ARGV.checked)
end
return {'grouped', added, removed}
