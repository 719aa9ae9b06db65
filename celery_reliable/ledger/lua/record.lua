--[[
record: note a publication before its message is sent. Where the queue is on the same server, send the message too.

Moves     absent -> queued | waiting
          running(attempt) -> queued | waiting   (the attempt itself publishes its id again: it is closed)
          running(attempt) -> queued | waiting   (the last member of the canvas that the attempt left its id to)
          waiting -> queued | waiting            (the same, when the attempt has ended; or anybody, of what was called off)
          dead -> queued | waiting               (somebody publishes the id of a dead letter anew, as the same task; or
                                                an operator replays it: its counters begin anew, its attempts go on)
          free | held by what has ended -> held   (by a unique task, or one that takes its place early; as attempt 0)
KEYS.record             task:<id>         HASH
KEYS.due                due               ZSET
KEYS.meta               meta              HASH
KEYS.claims             claims:<worker>   HASH of the worker that runs the publishing attempt
KEYS.queue              <queue>           LIST that the message is put into, as it is recorded; "none" when it is sent
                                          otherwise
KEYS.sent               sent:<sender>     STRING what the sender, who does one after the other, has published last
ARGV.id
ARGV.epoch              names this publication: "<attempt>-<nonce>", or "<attempt>-<nonce>-<sender>-<number>"
ARGV.generation         that the message is stamped with
ARGV.due_in_ms: int     when somebody must look; of what waits for its moment, when that is
ARGV.waits_for?         the reason for which it waits until its moment ("time"); "": it is queued
ARGV.message
ARGV.name               of the task; a living task or a dead letter of another name keeps its id
ARGV.attempt?: int      that publishes its own id; "" for anybody else
ARGV.max_losses?: int   of the task; "" for the setting
ARGV.token?             of the publishing attempt's claim; "" for anybody else
ARGV.remember_ms?: int  for how long the sender is known
ARGV.used: flag         "1": a task that had the same id before may have left a result; else ""
ARGV.heir?              the replacement whose canvas publishes; "" for anybody else
ARGV.number?: int       of this publication among its sender's; "" without a sender
ARGV.is_sent: flag      "1": put it into its queue, at its moment if it waits for one; else ""
ARGV.if_exists?         "": the id of a dead letter is published anew; "replay_dead": likewise, and its history says
                        that it is replayed; "replay": only that is done; "keep" or "refuse": a dead letter stays
ARGV.buried_ms?: int    with "replay": when the letter was buried that was seen; "" for whichever is there
ARGV.by?                with "replay": who replays it
ARGV.object+            of which it takes a place, as attempt 0
ARGV.places+: int       how many there are
ARGV.is_own+: flag      "1": the call says so itself, for its task alone; else ""
ARGV.unique+            "1": where another task has the place, nothing is recorded; "2": likewise, and it has been waited
                        for one whose outcome is being stored; "": without a place it stands in the line of the object
Returns   {"recorded"} | {"not_current"} | {"in_use", state, since_ms: int} | {"anothers", state, since_ms: int, name}
          | {"other_generation", current, format} | {"unknown"} | {"standing", before} | {"not_dead"}
          | {"locked_by", task_id} | {"kept_for", task_id} | {"concluding"} | {"still_stopping", task_id}
          "in_use" with the state, and since when the task is in it; "anothers": so is a task of that name, by which the
          id was published, whatever has replaced it since; "other_generation" with the format of the namespace, 0 if
          nobody has told it: by this publishers learn of a newer one; "unknown": the sender's publication before this
          one is not here, so it has to begin anew under another name; or this is a late copy, and the sender has gone
          on. Nothing is recorded of a unique task whose object another has: "locked_by" a task that is not withdrawn any
          more, as the call is answered with it; "concluding": its outcome may be known already, and its object is about to
          be free; "still_stopping": it is over, but a worker has still to stop what runs of it. "standing": it is recorded,
          and is not to be sent; "not_dead": that dead letter is none any more
Full      refused, but to an attempt
Cost      O(log N) in records that are due some time
]]
local now_ms = clock()
if ARGV.number ~= '' then
  local last, before = redis.call('GET', KEYS.sent) or '-0', '-' .. ARGV.number - 1
  if last == ARGV.epoch then
    -- Repeated; the task may have run and ended by now.
    return {'recorded'}
  end
  if string.sub(last, -#before) ~= before then
    local epoch, reply = string.match(last, '^(%S+) (.*)$')
    if epoch == ARGV.epoch then return cjson.decode(reply) end
    if not epoch or string.sub(epoch, -#before) ~= before then
      return {'unknown'}
    end
  end
end
local generation = current_generation(now_ms)
if generation ~= ARGV.generation then
  return {'other_generation', generation, redis.call('HGET', KEYS.meta, 'format') or '0'}
end
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'attempt', 'claim', 'history', 'since_ms',
  'waiting_for', 'name', 'published_as')
local state, called_off, is_replay = found[1], found[7] == 'stop', ARGV.if_exists == 'replay'
local is_heir = ARGV.heir ~= '' and noted(found[4], 'heir') == ARGV.heir
-- The id of a task that was replaced is that task's, and also of what replaced it: its host may publish that twice.
local name = found[9] or found[8]
local is_same = name == ARGV.name or found[8] == ARGV.name
if state and found[2] == ARGV.epoch then
  return {'recorded'}
end
if is_replay and (state ~= 'dead' or (ARGV.buried_ms ~= '' and found[6] ~= ARGV.buried_ms)) then
  return {'not_dead'}
end
local function refused(reply)
  if ARGV.number ~= '' then
    redis.call('SET', KEYS.sent, ARGV.epoch .. ' ' .. cjson.encode(reply), 'PX', ARGV.remember_ms)
  end
  return reply
end
local is_reborn = state == 'dead' and is_same and ARGV.if_exists ~= 'keep' and ARGV.if_exists ~= 'refuse'
local is_anew = not state or called_off or is_reborn
local place, before
if ARGV.object and is_anew then
  place, before = place_for(ARGV.id, ARGV.object, ARGV.places, turn_of(now_ms, ARGV.epoch), ARGV.is_own)
  if before and ARGV.unique ~= '' then
    local kept_for = string.match(redis.call('GET', KEYS.ledger .. 'lock:' .. ARGV.object) or '', '^kept:(.*)$')
    -- Also by the same id: published again, it is another task than the one that succeeded.
    if kept_for then return refused({'kept_for', kept_for}) end
    local record = KEYS.ledger .. 'task:' .. before
    local theirs = redis.call('HMGET', record, 'state', 'waiting_for', 'claim')
    if not theirs[1] or theirs[1] == 'dead' or theirs[2] == 'stop' then
      return refused({'still_stopping', before})
    elseif theirs[1] == 'running' and noted(theirs[3], 'concluding') and ARGV.unique == '1' then
      return refused({'concluding'})
    end
    -- What has a number is not withdrawn.
    redis.call('HINCRBY', record, 'attempt', 0)
    return refused({'locked_by', before})
  end
end
if ARGV.attempt ~= '' then
  -- What runs can be retried on a full server, which runs the rest of a script that has removed something.
  redis.call('HDEL', KEYS.ledger, '')
  if state ~= 'running' or found[3] ~= ARGV.attempt or parts_of(found[4]) ~= ARGV.token then
    return refused({'not_current'})
  end
  local history, cause = cjson.decode(found[5] or '[]'), ''
  if #history > 0 and history[#history].what == 'retried' then
    -- Retries must not drive losses out of the history.
    cause = (tonumber(string.match(table.remove(history).cause, '^%d+')) or 1) + 1 .. ' times'
  end
  redis.call('HSET', KEYS.record, 'history', longer(cjson.encode(history), 'retried', ARGV.attempt, cause, found[4]))
  redis.call('HDEL', KEYS.claims, ARGV.id)
  redis.call('HDEL', KEYS.record, 'claim')
elseif state == 'running' and is_heir then
  -- The claim stays in its worker's hash until the attempt ends, as that key is not known here.  The record forgets
  -- the object: whoever has the id from now on must not free it.
  redis.call('HDEL', KEYS.record, 'claim', 'object')
elseif is_reborn then
  redis.call('HSET', KEYS.record, 'losses', 0, 'history',
    longer(found[5], string.sub(ARGV.if_exists, 1, 6) == 'replay' and 'replayed' or 'published', found[3], '', nil, ARGV.by))
  redis.call('HDEL', KEYS.record, 'resends', 'revoked')
  take_out(KEYS.record, ARGV.id)
elseif called_off then
  redis.call('HDEL', KEYS.record, 'published_as')
  name = ARGV.name
elseif state and not (found[7] == 'canvas' and is_heir) then
  return refused(is_same and {'in_use', state, found[6]} or {'anothers', state, found[6], name})
end
if state then
  redis.call('HDEL', KEYS.record, 'deaths', 'list', 'members', 'waiting_for')
  if not is_replay then redis.call('HDEL', KEYS.record, 'max_losses') end
end
-- A retry, a replacement or a replay does not change when the task was published.
local published = is_anew and not is_replay and {'published_ms', now_ms} or {}
redis.call('HSET', KEYS.record, 'state', 'queued', 'epoch', ARGV.epoch, 'message', ARGV.message,
  'name', ARGV.name, 'since_ms', now_ms, unpack(published))
if state and name ~= ARGV.name then
  redis.call('HSET', KEYS.record, 'published_as', name)
end
if ARGV.max_losses ~= '' then
  redis.call('HSET', KEYS.record, 'max_losses', ARGV.max_losses)
end
if ARGV.used ~= '' or state then
  redis.call('HSET', KEYS.record, 'used', '')
end
if ARGV.waits_for ~= '' then
  if ARGV.is_sent == '1' then redis.call('HSET', KEYS.record, 'list', KEYS.queue) end
  wait_until(ARGV.id, string.format('%.0f', now_ms + ARGV.due_in_ms), ARGV.waits_for)
else
  redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
end
if place then
  redis.call('HSET', KEYS.record, 'object', place)
  redis.call('SET', KEYS.ledger .. 'lock:' .. place, '0:' .. ARGV.id)
end
if ARGV.number ~= '' then
  redis.call('SET', KEYS.sent, ARGV.epoch, 'PX', ARGV.remember_ms)
end
if ARGV.object and is_anew and not place then
  stand_for(ARGV.id, KEYS.record, ARGV.object, ARGV.places, turn_of(now_ms, ARGV.epoch), ARGV.is_own,
    ARGV.is_sent == '1' and KEYS.queue or '', ARGV.due_in_ms)
  -- A repeated call hears that it is recorded, and sends it: two messages do no harm.
  return {'standing', before or ''}
elseif ARGV.is_sent == '1' and ARGV.waits_for == '' then
  redis.call('LPUSH', KEYS.queue, ARGV.message)
end
return {'recorded'}
