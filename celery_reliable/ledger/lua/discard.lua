--[[
discard: an operator or retention removes a dead letter for good. The object that it still holds is freed.

Moves     dead -> absent
          dead -> waiting   (its last attempt was taken from its worker, which has not stopped it yet)
          held by this task -> free
KEYS.record             task:<id>       HASH
KEYS.due                due             ZSET
KEYS.dead               dead            ZSET
KEYS.meta               meta            HASH where trimmed letters are counted
KEYS.lock               lock:<object>   STRING of the object
KEYS.clock              clock           HASH
KEYS.ended+             ended           HASH where the task is kept
KEYS.ended_at+          ended_at        ZSET when each of these ended
ARGV.id
ARGV.buried_ms?: int    that was seen; "" for whichever is there
ARGV.due_in_ms: int     when to look whether that attempt has been stopped
ARGV.is_surplus: flag   "1": it goes because there are too many letters, which is counted; else ""
ARGV.object?            whose lock is given; "" for none
ARGV.outcome+           a word for it
ARGV.by+                who discards it
ARGV.most+: int         how many are kept
Returns   {"discarded"} | {"absent"} | {"not_dead", state} | {"other_object", object_key}
          "other_object": the record notes another one than was given, and nothing was changed
Repeated  absent -> discarded
Cost      O(log N) in dead letters
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'buried_ms', 'stopping', 'called_off', 'object', 'history',
  'name', 'published_ms', 'losses', 'attempt')
if not found[1] or found[4] then
  redis.call('ZREM', KEYS.dead, ARGV.id)
  return {'absent'}
end
if found[1] ~= 'dead' or (ARGV.buried_ms ~= '' and found[2] ~= ARGV.buried_ms) then
  return {'not_dead', found[1]}
end
if not found[3] and found[5] and found[5] ~= ARGV.object then
  return {'other_object', found[5]}
end
redis.call('ZREM', KEYS.dead, ARGV.id)
if ARGV.is_surplus == '1' then
  redis.call('HINCRBY', KEYS.meta, 'trimmed', 1)
  redis.call('HSET', KEYS.meta, 'trimmed_ms', string.format('%.0f', now_ms))
end
if not found[3] then
  redis.call('DEL', KEYS.record)
  redis.call('ZREM', KEYS.due, ARGV.id)
  if ARGV.object ~= '' and string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
    redis.call('DEL', KEYS.lock)
  end
else
  -- An attempt still runs, as in cancel.
  redis.call('HSET', KEYS.record, 'state', 'waiting', 'called_off', '1')
  redis.call('HDEL', KEYS.record, 'epoch', 'ended', 'losses', 'history', 'cause', 'reason', 'exception', 'traceback',
    'buried_ms', 'owed', 'stored', 'relied', 'suspect', 'spared', 'openings', 'waits', 'alone', 'sealed', 'read_by')
  redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
end
redis.call('HSET', KEYS.ended, ARGV.id, cjson.encode({outcome = ARGV.outcome, by = ARGV.by, ended_ms = now_ms,
  attempt = found[10], name = found[7], published_ms = found[8], losses = found[9], history = found[6]}))
redis.call('ZADD', KEYS.ended_at, now_ms, ARGV.id)
local spare = redis.call('HLEN', KEYS.ended) - ARGV.most
if spare > 0 then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS.ended_at, '-inf', '+inf', 'LIMIT', 0, math.min(spare, 10))) do
    redis.call('HDEL', KEYS.ended, id)
    redis.call('ZREM', KEYS.ended_at, id)
  end
end
return {'discarded'}
