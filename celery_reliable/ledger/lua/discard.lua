--[[
discard: an operator or retention removes a dead letter for good. The object that it still holds is freed.

Moves     dead -> absent
          dead -> waiting   (its last attempt was taken from its worker, which has not stopped it yet)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   dead     ZSET
KEYS[4]   meta     HASH     where trimmed letters are counted
KEYS[5]   lock     STRING   of the object; "none" for none
KEYS[6]   ended    HASH   where the task is kept
KEYS[7]   ended_at ZSET   when each of these ended
ARGV[1]   id
ARGV[2]   buried_ms   that was seen; "" for whichever is there
ARGV[3]   due_in_ms   when to look whether that attempt has been stopped
ARGV[4]   is_surplus  "1": it goes because there are too many letters, which is counted; else ""
ARGV[5]   object      whose lock is given; "" for none
ARGV[6]   outcome     a word for it
ARGV[7]   by          who discards it
ARGV[8]   most        how many are kept
Returns   {"discarded"} | {"absent"} | {"not_dead", state} | {"object", object}
          "object": the record notes another one than was given, and nothing was changed
Cost      O(log N) in dead letters
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'buried_ms', 'stopping', 'called_off', 'object', 'history',
  'name', 'published_ms', 'losses', 'attempt')
if not found[1] or found[4] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return {'absent'}
end
if found[1] ~= 'dead' or (ARGV[2] ~= '' and found[2] ~= ARGV[2]) then
  return {'not_dead', found[1]}
end
if not found[3] and found[5] and found[5] ~= ARGV[5] then
  return {'object', found[5]}
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', KEYS[3], ARGV[1])
if ARGV[4] == '1' then
  redis.call('HINCRBY', KEYS[4], 'trimmed', 1)
  redis.call('HSET', KEYS[4], 'trimmed_ms', string.format('%.0f', now_ms))
end
if not found[3] then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  if ARGV[5] ~= '' and string.match(redis.call('GET', KEYS[5]) or '', '^%d+:(.*)$') == ARGV[1] then
    redis.call('DEL', KEYS[5])
  end
else
  -- An attempt still runs, as in cancel.
  redis.call('HSET', KEYS[1], 'state', 'waiting', 'called_off', '1')
  redis.call('HDEL', KEYS[1], 'epoch', 'ended', 'losses', 'history', 'cause', 'reason', 'exception', 'traceback', 'buried_ms',
    'owed', 'stored', 'relied', 'suspect', 'spared', 'openings', 'waits', 'alone')
  redis.call('ZADD', KEYS[2], now_ms + ARGV[3], ARGV[1])
end
redis.call('HSET', KEYS[6], ARGV[1], cjson.encode({outcome = ARGV[6], by = ARGV[7], ended_ms = now_ms,
  attempt = found[10], name = found[7], published_ms = found[8], losses = found[9], history = found[6]}))
redis.call('ZADD', KEYS[7], now_ms, ARGV[1])
local spare = redis.call('HLEN', KEYS[6]) - ARGV[8]
if spare > 0 then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', '+inf', 'LIMIT', 0, math.min(spare, 10))) do
    redis.call('HDEL', KEYS[6], id)
    redis.call('ZREM', KEYS[7], id)
  end
end
return {'discarded'}
