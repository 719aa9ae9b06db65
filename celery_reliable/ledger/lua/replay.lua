--[[
replay: an operator returns a dead letter to its queue. Its counters start anew; its attempt numbers go on.

Moves     dead -> queued
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   dead     ZSET
KEYS[4]   meta     HASH
ARGV[1]   id
ARGV[2]   epoch        names this publication
ARGV[3]   generation   that the message is stamped with
ARGV[4]   message
ARGV[5]   due_in_ms    when somebody must look
ARGV[6]   by           who replays it
ARGV[7]   buried_ms    that was seen; "" for whichever is there
Returns   {"replayed"} | {"absent"} | {"not_dead", state} | {"generation", current, format}
Cost      O(log N) in dead letters
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'history', 'attempt', 'buried_ms')
if not found[1] then
  return {'absent'}
end
if found[2] == ARGV[2] then
  return {'replayed'}
end
if found[1] ~= 'dead' or (ARGV[7] ~= '' and found[5] ~= ARGV[7]) then
  return {'not_dead', found[1]}
end
local generation = redis.call('HGET', KEYS[4], 'generation')
if not generation or tonumber(generation) > now_ms + 86400000 then
  -- As in record: beginning at 1, old messages would look like new ones.
  generation = string.format('%.0f', now_ms)
  local info = redis.pcall('INFO', 'server')
  redis.call('HSET', KEYS[4], 'generation', generation,
    'run_id', type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '')
end
if generation ~= ARGV[3] then
  return {'generation', generation, redis.call('HGET', KEYS[4], 'format') or '0'}
end
local history = cjson.decode(found[3] or '[]')
history[#history + 1] = {at_ms = now_ms, what = 'replayed', attempt = tonumber(found[4] or 0),
  cause = '', owner = ARGV[6]}
while #history > 20 do table.remove(history, 1) end
redis.call('HSET', KEYS[1], 'state', 'queued', 'epoch', ARGV[2], 'message', ARGV[4], 'losses', 0,
  'sent_ms', now_ms, 'history', cjson.encode(history), 'used', '1')
redis.call('HDEL', KEYS[1], 'reason', 'exception', 'traceback', 'buried_ms', 'cause', 'owed', 'resends',
  'unsent', 'stored', 'waiting_for', 'suspect', 'spared', 'openings', 'waits', 'alone',
  'revoked', 'sealed', 'read_by', 'moved', 'next_epoch')
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZADD', KEYS[2], now_ms + ARGV[5], ARGV[1])
return {'replayed'}
