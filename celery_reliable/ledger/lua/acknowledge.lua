--[[
acknowledge: a worker has stopped an attempt that was taken from it.

The task may not go on before that. If it is queued, it is due now and may be claimed. If it was called off, it is
due now and may end. If it is dead, its object is freed.

Moves     held by this task -> free   (the task is dead)
KEYS.taken    taken:<worker>   HASH id -> "<attempt> <token>"
KEYS.record   task:<id>        HASH
KEYS.due      due              ZSET
ARGV.id
ARGV.claim    "<attempt> <token>", as the heartbeat told it
Returns   {"acknowledged"} | {"changed"}
Cost      O(log N) in records that are due some time
]]
if redis.call('HGET', KEYS.taken, ARGV.id) ~= ARGV.claim then
  return {'changed'}
end
local found = redis.call('HMGET', KEYS.record, 'state', 'claim', 'object', 'waiting_for', 'attempt')
redis.call('HDEL', KEYS.taken, ARGV.id)
if noted(found[2], 'stopping') and found[5] .. ' ' .. parts_of(found[2]) == ARGV.claim then
  redis.call('HSET', KEYS.record, 'claim', with_note(found[2], 'stopping'))
  if found[1] == 'dead' then
    redis.call('HDEL', KEYS.record, 'object')
    free(ARGV.id, found[3])
  elseif not found[4] or found[4] == 'stop' then
    redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
  end
end
return {'acknowledged'}
