--[[
resume: end an order, and let go what was parked by it, a bounded number at a time and in the order of publication.

The order is over with the first call; it is forgotten with the last one, when nothing is left that waits for it.

KEYS[1]   orders    HASH
KEYS[2]   due       ZSET
KEYS[3]   ordered   ZSET
ARGV[1]   id        of the order
ARGV[2]   by        who ends it; "": only if its time is over, or somebody has ended it
ARGV[3]   limit     so many tasks are due by this call
Returns   {"resumed", count, is_more} | {"in_force"} | {"gone"}   is_more: "1" or ""
Cost      O(limit * log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], ARGV[1], 'version')
if not found[1] then
  return {'gone'}
end
local is_read, order = pcall(cjson.decode, found[1])
if not is_read or type(order) ~= 'table' then
  order = {ended_ms = now_ms}
end
if not order.ended_ms then
  if ARGV[2] == '' and ((order.until_ms or 0) == 0 or now_ms < order.until_ms) then
    return {'in_force'}
  end
  order.ended_ms, order.ended_by, order.released = now_ms, ARGV[2], 0
  -- The removal comes first, as in claim.
  redis.call('HDEL', KEYS[1], '')
  redis.call('HSET', KEYS[1], 'version',
    string.format('%.0f', math.max(now_ms, (tonumber(found[2] or '') or 0) + 1)))
end
redis.call('ZREM', KEYS[3], '')
local ids, released = {}, order.released or 0
for _, member in ipairs(redis.call('ZRANGE', KEYS[3], '[' .. ARGV[1] .. ' ', '(' .. ARGV[1] .. '!', 'BYLEX', 'LIMIT', 0,
    ARGV[3])) do
  -- A pass sends them by their times, so each has one of its own, 1024 in a ms, and all of them are past.
  released = released + 1
  local id = string.match(member, '^%S+ %S+ (.*)$')
  redis.call('ZREM', KEYS[3], member)
  redis.call('ZADD', KEYS[2], 'XX', 'LT', string.format('%.4f', order.ended_ms - 1000 + released / 1024), id)
  ids[#ids + 1] = id
end
if #ids < tonumber(ARGV[3]) then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return {'resumed', #ids, ''}
end
order.released = released
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(order))
return {'resumed', #ids, '1'}
