--[[
unpark: a worker is alive that may run a task which waits for one. Or the task does not wait any more, and is taken
off the index of those that do.

KEYS.record           task:<id>   HASH
KEYS.due              due         ZSET
KEYS.unplaced         unplaced    HASH
ARGV.id
ARGV.is_there: flag   "1": the worker is; "": only look whether the task waits
Returns   {"unparked"} | {"still_waiting"} | {"changed"}
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'waiting_for')
if found[1] ~= 'parked' or found[2] ~= 'workers' then
  redis.call('HDEL', KEYS.unplaced, ARGV.id)
  return {'changed'}
end
if ARGV.is_there == '' then
  return {'still_waiting'}
end
redis.call('ZADD', KEYS.due, 'LT', now_ms, ARGV.id)
return {'unparked'}
