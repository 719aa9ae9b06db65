--[[
discard: an operator or retention removes a dead letter for good. The object that it still holds is freed.

Moves     dead -> absent
          dead -> waiting   (its last attempt was taken from its worker, which has not stopped it yet)
          held by this task -> free
KEYS.record             task:<id>       HASH
KEYS.dead               dead            ZSET
KEYS.meta               meta            HASH where trimmed letters are counted
ARGV.id
ARGV.buried_ms?: int    that was seen; "" for whichever is there
ARGV.due_in_ms: int     when to look whether that attempt has been stopped
ARGV.is_surplus: flag   "1": it goes because there are too many letters, which is counted; else ""
ARGV.outcome            a word for it
ARGV.by                 who discards it
ARGV.most: int          how many are kept
Returns   {"discarded"} | {"absent"} | {"not_dead", state}
Repeated  absent -> discarded
Cost      O(log N) in dead letters
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'since_ms', 'stopping', 'called_off', 'object', 'history',
  'name', 'published_ms', 'losses', 'attempt')
if not found[1] or found[4] then
  redis.call('ZREM', KEYS.dead, ARGV.id)
  return {'absent'}
end
if found[1] ~= 'dead' or (ARGV.buried_ms ~= '' and found[2] ~= ARGV.buried_ms) then
  return {'not_dead', found[1]}
end
redis.call('ZREM', KEYS.dead, ARGV.id)
if ARGV.is_surplus == '1' then
  redis.call('HINCRBY', KEYS.meta, 'trimmed', 1)
  redis.call('HSET', KEYS.meta, 'trimmed_ms', string.format('%.0f', now_ms))
end
call_off(still_stopping(KEYS.record, found[3]), found[5], ARGV.due_in_ms)
keep_ended({attempt = found[10], name = found[7], published_ms = found[8], losses = found[9], history = found[6]})
return {'discarded'}
