--[[
replay: an operator returns a dead letter to its queue. Its counters start anew; its attempt numbers go on.

Moves     dead -> queued
KEYS.record            task:<id>   HASH
KEYS.due               due         ZSET
KEYS.dead              dead        ZSET
KEYS.meta              meta        HASH
ARGV.id
ARGV.epoch             names this publication
ARGV.generation        that the message is stamped with
ARGV.message
ARGV.due_in_ms: int    when somebody must look
ARGV.by?               who replays it
ARGV.buried_ms?: int   that was seen; "" for whichever is there
Returns   {"replayed"} | {"absent"} | {"not_dead", state} | {"other_generation", current, format}
Full      refused
Cost      O(log N) in dead letters
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'history', 'attempt', 'since_ms')
if not found[1] then
  return {'absent'}
end
if found[2] == ARGV.epoch then
  return {'replayed'}
end
if found[1] ~= 'dead' or (ARGV.buried_ms ~= '' and found[5] ~= ARGV.buried_ms) then
  return {'not_dead', found[1]}
end
local generation = current_generation(now_ms)
if generation ~= ARGV.generation then
  return {'other_generation', generation, redis.call('HGET', KEYS.meta, 'format') or '0'}
end
redis.call('HSET', KEYS.record, 'state', 'queued', 'epoch', ARGV.epoch, 'message', ARGV.message, 'losses', 0,
  'since_ms', now_ms, 'history', longer(found[3], 'replayed', found[4], '', nil, ARGV.by), 'used', '1')
redis.call('HDEL', KEYS.record, 'reason', 'exception', 'traceback', 'owed', 'resends',
  'unsent', 'stored', 'waiting_for', 'suspect', 'spared', 'openings', 'waits', 'alone',
  'revoked', 'sealed', 'read_by', 'moved')
redis.call('ZREM', KEYS.dead, ARGV.id)
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
return {'replayed'}
