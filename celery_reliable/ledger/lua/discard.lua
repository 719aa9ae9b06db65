--[[
discard: an operator, or retention, removes a dead letter for good, and frees what it has left locked.

Moves     dead -> absent
          dead -> waiting   (its last attempt was taken from its worker, which has not stopped it yet)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   dead     ZSET
KEYS[4]   lock     STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   buried_ms   that was seen; "" for whichever is there
ARGV[3]   due_in_ms   when to look whether that attempt has been stopped
ARGV[4]   object      whose lock is given; "" for none
Returns   {"discarded"} | {"absent"} | {"not_dead", state} | {"object", object}
          "object": the record notes another one than was given, and nothing was changed
Cost      O(log N) in dead letters
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'buried_ms', 'stopping', 'called_off', 'object')
if not found[1] or found[4] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return {'absent'}
end
if found[1] ~= 'dead' or (ARGV[2] ~= '' and found[2] ~= ARGV[2]) then
  return {'not_dead', found[1]}
end
if not found[3] and found[5] and found[5] ~= ARGV[4] then
  return {'object', found[5]}
end
redis.call('ZREM', KEYS[3], ARGV[1])
if not found[3] then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  if ARGV[4] ~= '' and string.match(redis.call('GET', KEYS[4]) or '', '^%d+:(.*)$') == ARGV[1] then
    redis.call('DEL', KEYS[4])
  end
  return {'discarded'}
end
-- An attempt still runs, as in cancel.
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'state', 'waiting', 'called_off', '1')
redis.call('HDEL', KEYS[1], 'epoch', 'ended', 'losses', 'history', 'cause', 'reason', 'exception', 'traceback', 'buried_ms',
  'owed', 'stored', 'relied', 'kept', 'suspect', 'spared', 'openings', 'waits', 'alone')
redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], ARGV[1])
return {'discarded'}
