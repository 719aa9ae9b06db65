--[[
order: an operator gives an order, which holds until it is resumed or its time is over.

KEYS.orders             orders   HASH
ARGV.id                 of the order
ARGV.kind               "pause", "strike" or "drain"
ARGV.target             the queue, task or worker
ARGV.object             of a strike: the only object that is meant; with has_object
ARGV.has_object: flag   "1" or ""
ARGV.is_stop: flag      "1": what runs there is stopped, too; or ""
ARGV.by                 who gives it
ARGV.why
ARGV.for_ms: int        "0": until it is resumed
ARGV.version: int       that was seen; "0" for none
Returns   {"ordered"} | {"changed"}
          "changed": somebody has given or ended an order meanwhile, or this is a late copy of the call
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.orders, 'version', ARGV.id)
if found[2] then
  return {'ordered'}
end
if (found[1] or '0') ~= ARGV.version then
  return {'changed'}
end
-- A time, so that a server that forgets its orders does not come to the same version again.
local version = math.max(now_ms, (tonumber(found[1] or '') or 0) + 1)
local for_ms = tonumber(ARGV.for_ms)
redis.call('HSET', KEYS.orders, 'version', string.format('%.0f', version), ARGV.id, cjson.encode({
  kind = ARGV.kind, target = ARGV.target, object = ARGV.has_object == '1' and ARGV.object or nil,
  is_stop = ARGV.is_stop == '1',
  by = ARGV.by, why = ARGV.why, given_ms = now_ms, until_ms = for_ms > 0 and now_ms + for_ms or 0}))
return {'ordered'}
