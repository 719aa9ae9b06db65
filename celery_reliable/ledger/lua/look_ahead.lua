--[[
look_ahead: messages may have been lost, so the next pass looks at all that is queued, before it is due.

Each pass compares the queues' server with the one that the pass before it met. If it is the same, and was not emptied,
nothing is lost.

KEYS.meta           meta   HASH
ARGV.ago_ms?: int   how long ago the first of them may have been lost; "": any may be, however old it is
ARGV.broker?        what tells the server, and that it was not emptied; "": nothing is compared
Returns   {"asked"} | {"known"}
          "known" also when nobody has met a server before
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.meta, 'broker', 'ahead_ms')
if ARGV.broker ~= '' then
  redis.call('HSET', KEYS.meta, 'broker', ARGV.broker)
  if not found[1] or found[1] == ARGV.broker then
    return {'known'}
  end
end
local since_ms = ARGV.ago_ms ~= '' and now_ms - ARGV.ago_ms or 0
redis.call('HSET', KEYS.meta, 'ahead_ms', math.min(since_ms, tonumber(found[2] or since_ms)))
redis.call('HINCRBY', KEYS.meta, 'ahead_count', 1)
return {'asked'}
