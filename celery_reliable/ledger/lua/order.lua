--[[
order: an operator gives an order, which holds until it is resumed or its time is over.

KEYS[1]   orders   HASH
ARGV[1]   id         of the order
ARGV[2]   kind       "pause", "strike" or "drain"
ARGV[3]   target     the queue, task or worker
ARGV[4]   object     of a strike: the only object that is meant; with has_object
ARGV[5]   has_object "1" or ""
ARGV[6]   is_stop    "1": what runs there is stopped, too; or ""
ARGV[7]   by         who gives it
ARGV[8]   why
ARGV[9]   for_ms     "0": until it is resumed
ARGV[10]  version    that was seen; "0" for none
Returns   {"ordered"} | {"changed"}
          "changed": somebody has given or ended an order meanwhile, or this is a late copy of the call
Cost      O(1)
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'version', ARGV[1])
if found[2] then
  return {'ordered'}
end
if (found[1] or '0') ~= ARGV[10] then
  return {'changed'}
end
-- A time, so that a server that forgets its orders does not come to the same version again.
local version = math.max(now_ms, (tonumber(found[1] or '') or 0) + 1)
local for_ms = tonumber(ARGV[9])
-- The removal comes first, as in claim: what a full Redis does, has to be stopped, too.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version), ARGV[1], cjson.encode({
  kind = ARGV[2], target = ARGV[3], object = ARGV[5] == '1' and ARGV[4] or nil, is_stop = ARGV[6] == '1',
  by = ARGV[7], why = ARGV[8], given_ms = now_ms, until_ms = for_ms > 0 and now_ms + for_ms or 0}))
return {'ordered'}
