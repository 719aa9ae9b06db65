--[[
record: note a publication before its message is sent. Where the queue is on the same server, send the message too.

Moves     absent -> queued | parked
          running(attempt) -> queued | parked   (the attempt itself publishes its id again: it is closed)
          running(attempt) -> queued | parked   (the last member of the canvas that the attempt left its id to)
          waiting -> queued | parked            (the same, when the attempt has ended; or anybody, of what was called off)
          dead -> queued | parked               (somebody publishes the id of a dead letter anew, as the same task)
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   meta     HASH
KEYS[4]   claims   HASH   of the worker that runs the publishing attempt
KEYS[5]   dead     ZSET
KEYS[6]   queue    LIST   that the message is put into, as it is recorded; "none" when it is sent otherwise
KEYS[7]   sent     STRING   what the sender, who does one after the other, has published last
ARGV[1]   id
ARGV[2]   epoch        names this publication: "<attempt>-<nonce>", or "<attempt>-<nonce>-<sender>-<number>"
ARGV[3]   generation   that the message is stamped with
ARGV[4]   state        "queued" or "parked"
ARGV[5]   due_in_ms    when somebody must look
ARGV[6]   message
ARGV[7]   name         of the task; a living task or a dead letter of another name keeps its id
ARGV[8]   attempt      that publishes its own id; "" for anybody else
ARGV[9]   max_losses   of the task; "" for the setting
ARGV[10]  token        of the publishing attempt's claim; "" for anybody else
ARGV[11]  remember_ms  for how long the sender is known
ARGV[12]  used         "1": a task that had the same id before may have left a result; else ""
ARGV[13]  heir         the replacement whose canvas publishes; "" for anybody else
ARGV[14]  number       of this publication among its sender's; "" without a sender
ARGV[15]  is_sent      "1": put it into its queue; else ""
ARGV[16]  waits_for    an object: the attempt has not begun its body as another task has that, and gives its number
                       back: the next one is told from it by its token; else ""
ARGV[17] moved        which workers an operator has named meanwhile, as the attempt was told; "" for none
ARGV[18]  if_exists    "": the id of a dead letter is published anew; "replay_dead": likewise, and its history says that
                       it is replayed; "keep" or "refuse": a dead letter stays
Returns   {"recorded"} | {"fenced"} | {"exists", state, since_ms} | {"anothers", state, since_ms, name}
          | {"generation", current, format} | {"unknown"} | {"moved", named}
          "exists" with the state, and since when the task is in it; "anothers": so is a task of that name, by which
          the id was published, whatever has replaced it since
          "moved": an operator has named other workers while the attempt ran, and the message has to say so
          "generation" with the format of the namespace, 0 if nobody has told it: by this publishers learn of a newer one
          "unknown": the sender's publication before this one is not here, so it has to begin anew under another
          name; or this is a late copy, and the sender has gone on
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[14] ~= '' then
  local last, before = redis.call('GET', KEYS[7]) or '-0', '-' .. ARGV[14] - 1
  if last == ARGV[2] then
    -- Repeated; the task may have run and ended by now.
    return {'recorded'}
  end
  if string.sub(last, -#before) ~= before then
    local epoch, reply, state, since_ms, name = string.match(last, '^(%S+) (%S+) ?(%S*) ?(%S*) ?(.*)$')
    if epoch == ARGV[2] and reply == 'exists' then return {'exists', state, since_ms} end
    if epoch == ARGV[2] and reply == 'anothers' then return {'anothers', state, since_ms, name} end
    if epoch == ARGV[2] then return {'fenced'} end
    if not epoch or string.sub(epoch, -#before) ~= before then
      return {'unknown'}
    end
  end
end
local generation = redis.call('HGET', KEYS[3], 'generation')
if not generation or tonumber(generation) > now_ms + 86400000 then
  -- Not from 1: where everything was lost, the messages of before must not pass for today's. Nor from
  -- what cannot be: a message told it.
  generation = string.format('%.0f', now_ms)
  local info = redis.pcall('INFO', 'server')
  redis.call('HSET', KEYS[3], 'generation', generation,
    'run_id', type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '')
end
if generation ~= ARGV[3] then
  return {'generation', generation, redis.call('HGET', KEYS[3], 'format') or '0'}
end
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'attempt', 'token', 'heir', 'history',
  'owner', 'called_off', 'name', 'published_as', 'pid', 'claimed_ms')
local state, called_off = found[1], found[8]
-- The id of a task that was replaced is that task's, and also of what replaced it: its host may publish that twice.
local name = found[10] or found[9]
local is_same = name == ARGV[7] or found[9] == ARGV[7]
if state and found[2] == ARGV[2] then
  return {'recorded'}
end
if ARGV[8] ~= '' then
  -- The removal comes first, as in claim: what runs can be retried on a full server.
  redis.call('HDEL', KEYS[4], '')
  if state ~= 'running' or found[3] ~= ARGV[8] or found[4] ~= ARGV[10] then
    if ARGV[14] ~= '' then redis.call('SET', KEYS[7], ARGV[2] .. ' fenced', 'PX', ARGV[11]) end
    return {'fenced'}
  end
  local moved = redis.call('HGET', KEYS[1], 'moved') or ''
  if moved ~= ARGV[17] then
    return {'moved', moved}
  end
  if ARGV[16] ~= '' then
    redis.call('HSET', KEYS[1], 'attempt', ARGV[8] - 1, 'waiting_for', ARGV[16])
  else
    local history = cjson.decode(found[6] or '[]')
    local entry = {what = 'retried', cause = ''}
    if #history > 0 and history[#history].what == 'retried' then
      -- Retries must not drive losses out of the history.
      entry = table.remove(history)
      entry.cause = (tonumber(string.match(entry.cause, '^%d+')) or 1) + 1 .. ' times'
    end
    entry.at_ms, entry.attempt, entry.owner = now_ms, tonumber(ARGV[8]), found[7]
    entry.pid, entry.claimed_ms = tonumber(found[11]), tonumber(found[12])
    history[#history + 1] = entry
    while #history > 20 do table.remove(history, 1) end
    redis.call('HSET', KEYS[1], 'history', cjson.encode(history))
  end
  redis.call('HDEL', KEYS[4], ARGV[1])
  redis.call('HDEL', KEYS[1], 'owner', 'token', 'pid', 'claimed_ms', 'heir', 'stored')
elseif state == 'running' and found[5] == ARGV[13] then
  -- The claim stays in its worker's hash until the attempt ends, as that key is not known here.  The record forgets
  -- the object: whoever has the id from now on must not free it.
  redis.call('HDEL', KEYS[1], 'owner', 'token', 'pid', 'claimed_ms', 'heir', 'stored', 'object')
elseif state == 'dead' and is_same and ARGV[18] ~= 'keep' and ARGV[18] ~= 'refuse' then
  local history = cjson.decode(found[6] or '[]')
  local what = ARGV[18] == 'replay_dead' and 'replayed' or 'published'
  history[#history + 1] = {at_ms = now_ms, what = what, attempt = tonumber(found[3] or 0),
    cause = '', owner = ''}
  while #history > 20 do table.remove(history, 1) end
  redis.call('HSET', KEYS[1], 'losses', 0, 'history', cjson.encode(history), 'used', '1')
  redis.call('HDEL', KEYS[1], 'reason', 'exception', 'traceback', 'buried_ms', 'cause', 'owed', 'resends',
    'unsent', 'stored', 'revoked', 'waiting_for')
  redis.call('ZREM', KEYS[5], ARGV[1])
elseif called_off then
  redis.call('HDEL', KEYS[1], 'called_off', 'published_as')
  name = ARGV[7]
elseif state == 'waiting' and found[5] == ARGV[13] then
  redis.call('HDEL', KEYS[1], 'heir', 'stored', 'members')
elseif state then
  local at = redis.call('HMGET', KEYS[1], 'buried_ms', 'claimed_ms', 'waiting_ms', 'published_ms', 'sent_ms')
  local since_ms = ({dead = at[1], running = at[2], waiting = at[3]})[state] or at[4] or '0'
  if (state == 'queued' or state == 'parked') and tonumber(at[5] or 0) > tonumber(since_ms) then
    since_ms = at[5]
  end
  local reply = is_same and {'exists', state, since_ms} or {'anothers', state, since_ms, name}
  if ARGV[14] ~= '' then
    redis.call('SET', KEYS[7], ARGV[2] .. ' ' .. table.concat(reply, ' '), 'PX', ARGV[11])
  end
  return reply
end
local when = 'published_ms'
if state then
  redis.call('HDEL', KEYS[1], 'suspect', 'spared', 'openings', 'waits', 'alone', 'sealed', 'read_by', 'max_losses',
    'moved', 'next_epoch')
  -- A retry or a replacement does not change when the task was published.
  when = (state == 'dead' or called_off) and when or 'sent_ms'
end
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'epoch', ARGV[2], 'message', ARGV[6],
  'name', ARGV[7], when, now_ms)
if state and name ~= ARGV[7] then
  redis.call('HSET', KEYS[1], 'published_as', name)
end
if ARGV[9] ~= '' then
  redis.call('HSET', KEYS[1], 'max_losses', ARGV[9])
end
if ARGV[12] ~= '' then
  redis.call('HSET', KEYS[1], 'used', '1')
end
redis.call('ZADD', KEYS[2], now_ms + ARGV[5], ARGV[1])
if ARGV[4] == 'parked' and now_ms > tonumber(redis.call('HGET', KEYS[3], 'latest_ms') or 0) then
  -- It would wait for as much longer as the clock is ahead, if that steps back before a pass or a beat has seen it.
  redis.call('HSET', KEYS[3], 'latest_ms', now_ms)
end
if ARGV[14] ~= '' then
  redis.call('SET', KEYS[7], ARGV[2], 'PX', ARGV[11])
end
if ARGV[15] == '1' then
  redis.call('LPUSH', KEYS[6], ARGV[6])
end
return {'recorded'}
