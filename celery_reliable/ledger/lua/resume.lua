--[[
resume: end an order, and let go what waits for it, a bounded number at a time and in the order of publication: its
moment has come.

The order is over with the first call; it is forgotten with the last one, when nothing is left that waits for it.

KEYS.orders       orders    HASH
ARGV.id           of the order
ARGV.by           who ends it; "": only if its time is over, or somebody has ended it
ARGV.limit: int   so many tasks are due by this call
Returns   {"resumed", count: int, is_more: flag} | {"in_force"} | {"gone"}   is_more: "1" or ""
Cost      O(limit * log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.orders, ARGV.id, 'version')
if not found[1] then
  return {'gone'}
end
local is_read, order = pcall(cjson.decode, found[1])
if not is_read or type(order) ~= 'table' then
  order = {ended_ms = now_ms}
end
if not order.ended_ms then
  if ARGV.by == '' and ((order.until_ms or 0) == 0 or now_ms < order.until_ms) then
    return {'in_force'}
  end
  order.ended_ms, order.ended_by, order.released = now_ms, ARGV.by, 0
  redis.call('HSET', KEYS.orders, 'version',
    string.format('%.0f', math.max(now_ms, (tonumber(found[2] or '') or 0) + 1)))
end
local line, released = KEYS.ledger .. 'waiting:order ' .. ARGV.id, order.released or 0
local ids = redis.call('ZRANGE', line, 0, ARGV.limit - 1)
for _, id in ipairs(ids) do
  -- They are sent by their times, so each has one of its own, 1024 in a ms, and all of them are past.
  released = released + 1
  local record = KEYS.ledger .. 'task:' .. id
  redis.call('ZREM', line, id)
  if redis.call('HGET', record, 'waiting_for') == 'order ' .. ARGV.id then
    wait_until(id, string.format('%.4f', order.ended_ms - 1000 + released / 1024), 'time')
  end
end
if #ids < tonumber(ARGV.limit) then
  redis.call('HDEL', KEYS.orders, ARGV.id)
  return {'resumed', #ids, ''}
end
order.released = released
redis.call('HSET', KEYS.orders, ARGV.id, cjson.encode(order))
return {'resumed', #ids, '1'}
