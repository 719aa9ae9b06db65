--[[
postpone: a pass has looked at a record, and there is nothing to do yet.

KEYS.record            task:<id>   HASH
KEYS.due               due         ZSET
ARGV.id
ARGV.due_ms            that was seen
ARGV.due_in_ms: int    when to look again
ARGV.is_unsent: flag   "1": the resend that gave this due_ms was not sent; resends are counted anew
Returns   {"postponed"} | {"changed"} | {"gone"}
Repeated  changed -> postponed
Cost      O(log N) in records that are due some time
]]
if redis.call('ZSCORE', KEYS.due, ARGV.id) ~= ARGV.due_ms then
  return {'changed'}
end
if redis.call('EXISTS', KEYS.record) == 0 then
  redis.call('ZREM', KEYS.due, ARGV.id)
  return {'gone'}
end
if ARGV.is_unsent == '1' then
  redis.call('HSET', KEYS.record, 'resends', 'unsent')
end
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
return {'postponed'}
