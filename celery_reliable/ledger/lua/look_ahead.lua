--[[
look_ahead: messages may have been lost, so the next pass looks at all that is queued, before it is due.

Each pass compares the queues' server with the one that the pass before it met. If it is the same, and was not emptied,
nothing is lost.

KEYS.meta     meta   HASH
ARGV.broker   what tells the server, and that it was not emptied
Returns   {"asked"} | {"known"}
          "known" also when nobody has met a server before
Cost      O(1)
]]
local before = redis.call('HGET', KEYS.meta, 'broker')
redis.call('HSET', KEYS.meta, 'broker', ARGV.broker)
if not before or before == ARGV.broker then
  return {'known'}
end
redis.call('HSET', KEYS.meta, 'ahead_ms', 0)
redis.call('HINCRBY', KEYS.meta, 'ahead_count', 1)
return {'asked'}
