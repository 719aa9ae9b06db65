--[[
divert: have a task sent from its record at once. Either its message is where nobody may run it, or it waits for a worker
and one is alive now.

KEYS.record    task:<id>         HASH
KEYS.due       due               ZSET
KEYS.waiting   waiting:workers   HASH
ARGV.id
ARGV.epoch?            of the message; "" when it carries none
ARGV.is_waiting: flag  "1": it waits for a worker
Returns   {"diverted"} | {"changed"} | {"absent"}
          "changed": the message is a late copy, and the task goes on without it; or it does not wait for a worker
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'resends', 'waiting_for')
if ARGV.is_waiting == '1' then
  if found[4] ~= 'workers' then
    redis.call('HDEL', KEYS.waiting, ARGV.id)
    return {'changed'}
  end
  redis.call('ZADD', KEYS.due, 'LT', now_ms, ARGV.id)
  return {'diverted'}
end
if not found[1] then
  return {'absent'}
end
if found[1] ~= 'queued' or (found[2] or '') ~= ARGV.epoch then
  return {'changed'}
end
if found[3] == 'unsent' and tonumber(redis.call('ZSCORE', KEYS.due, ARGV.id) or math.huge) <= now_ms then
  return {'diverted'}
end
redis.call('HSET', KEYS.record, 'resends', 'unsent')
redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
return {'diverted'}
