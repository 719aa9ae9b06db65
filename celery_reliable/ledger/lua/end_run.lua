--[[
end_run: a pass has looked at a run: it goes on, or all its members have ended and it is kept for a while.

KEYS.run               run:<id>   HASH
KEYS.runs              runs       ZSET
ARGV.id
ARGV.due_ms            that was seen
ARGV.keep_ms?: int     for how long it is kept, as it is over; "" when it goes on
ARGV.due_in_ms?: int   when to look again, as it goes on
Returns   {"postponed"} | {"ended"} | {"changed"}
Cost      O(log N) in runs
]]
if redis.call('ZSCORE', KEYS.runs, ARGV.id) ~= ARGV.due_ms then
  return {'changed'}
end
-- The removal comes first, as in claim.
redis.call('ZREM', KEYS.runs, ARGV.id)
if ARGV.keep_ms ~= '' then
  redis.call('PEXPIRE', KEYS.run, ARGV.keep_ms)
  return {'ended'}
end
redis.call('ZADD', KEYS.runs, now_ms + ARGV.due_in_ms, ARGV.id)
return {'postponed'}
