--[[
replay: an operator returns a dead letter to its queue. Its counters start anew; its attempt numbers go on.

Moves     dead -> queued
KEYS.record            task:<id>   HASH
KEYS.due               due         ZSET
KEYS.dead              dead        ZSET
KEYS.meta              meta        HASH
KEYS.clock             clock       HASH
ARGV.id
ARGV.epoch             names this publication
ARGV.generation        that the message is stamped with
ARGV.message
ARGV.due_in_ms: int    when somebody must look
ARGV.by?               who replays it
ARGV.buried_ms?: int   that was seen; "" for whichever is there
Returns   {"replayed"} | {"absent"} | {"not_dead", state} | {"other_generation", current, format}
Cost      O(log N) in dead letters
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'history', 'attempt', 'buried_ms')
if not found[1] then
  return {'absent'}
end
if found[2] == ARGV.epoch then
  return {'replayed'}
end
if found[1] ~= 'dead' or (ARGV.buried_ms ~= '' and found[5] ~= ARGV.buried_ms) then
  return {'not_dead', found[1]}
end
local generation = redis.call('HGET', KEYS.meta, 'generation')
if not generation or tonumber(generation) > now_ms + 86400000 then
  -- As in record: beginning at 1, old messages would look like new ones.
  generation = string.format('%.0f', now_ms)
  local info = redis.pcall('INFO', 'server')
  redis.call('HSET', KEYS.meta, 'generation', generation,
    'run_id', type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '')
end
if generation ~= ARGV.generation then
  return {'other_generation', generation, redis.call('HGET', KEYS.meta, 'format') or '0'}
end
local history = cjson.decode(found[3] or '[]')
history[#history + 1] = {at_ms = now_ms, what = 'replayed', attempt = tonumber(found[4] or 0),
  cause = '', owner = ARGV.by}
while #history > 20 do table.remove(history, 1) end
redis.call('HSET', KEYS.record, 'state', 'queued', 'epoch', ARGV.epoch, 'message', ARGV.message, 'losses', 0,
  'sent_ms', now_ms, 'history', cjson.encode(history), 'used', '1')
redis.call('HDEL', KEYS.record, 'reason', 'exception', 'traceback', 'buried_ms', 'cause', 'owed', 'resends',
  'unsent', 'stored', 'waiting_for', 'suspect', 'spared', 'openings', 'waits', 'alone',
  'revoked', 'sealed', 'read_by', 'moved', 'next_epoch')
redis.call('ZREM', KEYS.dead, ARGV.id)
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
return {'replayed'}
