--[[
place: take one of an object's places for a task, or let the task stand in the object's line until there is one.

Who asks gets a place only if nobody stands in the line before it: the line is in the order of publication. What
stands there and has ended is struck off when its turn has come. A task that comes back and has a place beyond those
that there are by now keeps that: nobody else would ever ask for it.

Moves     free -> held
          held by an older attempt of the same id -> held
          held by the value that was seen and whose record is gone -> held
          running(attempt) -> parked   (it stands in the line; its body has not begun, so it gives its number back)
          parked -> queued             (its turn has come: it holds the place as attempt 0)
KEYS.record           <record>          HASH; without an id what the keys of records begin with
KEYS.due              due                ZSET
KEYS.line             waiting:<object>   ZSET of the object
KEYS.claims           claims:<worker>    HASH of the attempt's worker; "none" for what is parked
KEYS.queue            <queue>            LIST that the message is put into when its turn has come; "none" when it is
                                         sent otherwise
KEYS.clock            clock              HASH
KEYS.places...                           for each place: the lock, STRING "<attempt>:<id>", or "kept:<id>" with an
                                         expiry; the record, HASH, of the id in the value that was seen of it, or
                                         "none"; behind them the lock that was answered with "own_place"
ARGV.id               "": whoever stands in the line first. The key of that record is made here, so this is for a
                      queue in the ledger's own database, on a server that is no cluster
ARGV.attempt?: int    that is about to begin its body; "": the one that the claim with this token has begun; 0: the
                      task is parked
ARGV.token            of the attempt's claim; the epoch of what is parked; "" without an id: whatever is parked, if
                      its message may be put into that very queue as it is
ARGV.object
ARGV.is_new: flag     "1": without a place it stands in the line from now on; else ""
ARGV.due_in_ms: int   when somebody must look at what was sent, and at who is the first of the line
ARGV.is_sent: flag    "1": put its message into the queue, now or when its turn has come; else ""
ARGV.seen...          for each place: the object as the record notes it; the value that was seen, "" for none
Returns   {"placed", object_key} | {"full", values, before} | {"standing", before} | {"sent"}
          | {"send", message, due_ms, is_suspect: flag} | {"still_stopping", task_id, worker} | {"not_current"}
          | {"own_place", object_key}
          "placed": the attempt has that place; "full": the value of each place in a line of text, "" for a free one,
          and in the same way who stands before it; "send" it, as `resend` says; "still_stopping": a task that was seen
          is over, but what that worker still runs of it has the place; "not_current": the attempt is not the current
          one, what is parked does not stand in this line any more, or nobody does; "own_place": the record notes that
          place, whose lock is needed
Cost      O(places * log N) in records that are due some time; and as often for what has ended in the line
]]
local id, is_attempt, is_new, KEYS = ARGV.id, ARGV.attempt ~= '0', ARGV.is_new == '1', KEYS
if id == '' then
  for struck = 1, 1000 do
    id = redis.call('ZRANGE', KEYS.line, 0, 0)[1]
    -- What is parked is due some time.
    if not id or redis.call('ZSCORE', KEYS.due, id) then break end
    redis.call('ZREM', KEYS.line, id)
  end
  if not id then
    return {'not_current'}
  end
  KEYS = {KEYS.record .. id, unpack(KEYS, 2)}
end
local record = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'token', 'epoch', 'reserved', 'published_ms',
  'message',
  'suspect', 'waiting_for', 'revoked', 'spent', 'next_epoch', 'list', 'places', 'object')
local waits_for, places, own = 'object ' .. ARGV.object, (#ARGV - FIRST.seen + 1) / 2, record[15] or ''
local attempt = ARGV.attempt == '' and record[2] or ARGV.attempt
local is_his = record[1] == 'running' and record[2] == attempt and record[3] == ARGV.token
if not is_attempt then
  is_his = record[1] == 'parked' and record[4] == ARGV.token and (is_new or record[9] == waits_for)
  if ARGV.id == '' then
    -- What was in a death says so in its message.
    is_his = record[1] == 'parked' and record[9] == waits_for and record[13] == KEYS.queue and not record[8]
      and tonumber(record[14]) == places
  end
  if is_new and record[1] == 'queued' and record[4] == ARGV.token then
    -- Repeated.  What may have been sent is sent again, as two messages do no harm.
    if ARGV.is_sent == '1' then return {'sent'} end
    return {'send', record[7], redis.call('ZSCORE', KEYS.due, id) or '', record[8] or ''}
  end
end
if not is_his then
  if is_attempt and record[1] == 'parked' and record[9] == waits_for
      and string.find(record[11] or '', ' ' .. ARGV.token .. ' ', 1, true) then
    -- Repeated.
    return {'standing', ''}
  end
  if not is_attempt and (record[1] ~= 'parked' or record[9] ~= waits_for) then
    redis.call('ZREM', KEYS.line, id)
  end
  return {'not_current'}
end
local free, values, before, mine, names = {}, {}, {}, nil, {}
local is_beyond = is_attempt and string.sub(own, 1, #ARGV.object + 1) == ARGV.object .. '#'
  and (tonumber(string.sub(own, #ARGV.object + 2)) or 0) > places
local last = #KEYS
if is_beyond and last == FIRST.places - 1 + 2 * places then
  return {'own_place', own}
end
if is_beyond and string.match(redis.call('GET', KEYS[last]) or '', '^%d+:(.*)$') == id then
  mine, names[last] = last, own
end
for place = 1, places do
  local at = FIRST.places - 2 + 2 * place
  local over = at + 1
  names[at] = ARGV[FIRST.seen + 2 * place - 2]
  local value = redis.call('GET', KEYS[at])
  local is_over = false
  if value and value == ARGV[FIRST.seen + 2 * place - 1] and string.sub(value, 1, 5) ~= 'kept:' then
    local holder = redis.call('HMGET', KEYS[over], 'state', 'called_off', 'stopping_on')
    is_over = not holder[1] or holder[1] == 'dead' or holder[2]
    if is_over and holder[3] then
      return {'still_stopping', string.match(value, '^%w+:(.*)$'), holder[3]}
    end
  end
  values[place] = value or ''
  if not value or is_over then
    free[#free + 1] = at
  else
    local number, holder = string.match(value, '^(%w+):(.*)$')
    if holder == id and number ~= 'kept' then mine = at end
  end
end
-- By the time of publication; within one ms by the number among its sender's.
local number = tonumber(string.match(record[4] or '', '%-(%d+)$') or 0)
local score = tonumber(record[6] or now_ms) + number % 4096 / 4096
local function is_behind(other, others_score)
  if others_score ~= score then return others_score > score end
  -- As the line orders who was published in the same moment; < goes by the server's locale.
  for i = 1, math.min(#other, #id) do
    local theirs, his = string.byte(other, i), string.byte(id, i)
    if theirs ~= his then return theirs > his end
  end
  return #other > #id
end
local ahead = 0
if not mine then
  local struck = 0
  while ahead < math.max(#free, 1) do
    local other = redis.call('ZRANGE', KEYS.line, ahead, ahead, 'WITHSCORES')
    if not other[1] or other[1] == id or is_behind(other[1], tonumber(other[2])) then break end
    if redis.call('ZSCORE', KEYS.due, other[1]) or struck == 1000 then
      ahead = ahead + 1
      before[ahead] = other[1]
    else
      -- What is parked is due some time, so this one is not there any more.
      redis.call('ZREM', KEYS.line, other[1])
      struck = struck + 1
    end
  end
end
local at = mine or (ahead < #free and free[1])
if at and (is_attempt or not record[10]) then
  redis.call('HDEL', KEYS.record, 'waiting_for', 'places', 'list', 'unsent', 'resends')
  redis.call('HSET', KEYS.record, 'object', names[at])
  redis.call('SET', KEYS[at], attempt .. ':' .. id)
  redis.call('ZREM', KEYS.line, id)
  local next_one = redis.call('ZRANGE', KEYS.line, 0, 0)[1]
  if next_one then
    -- Only the first of a line is looked at, unless there are more places.
    redis.call('ZADD', KEYS.due, 'XX', 'LT', now_ms + (#free > 1 and 0 or ARGV.due_in_ms), next_one)
  end
  if is_attempt then
    return {'placed', names[at]}
  end
  redis.call('HSET', KEYS.record, 'state', 'queued', 'sent_ms', now_ms)
  local epoch, lapses = string.match(record[5] or '', '^(%S*) %d+ (%d+)$')
  if epoch == record[4] then
    -- It has had its moment of a limited rate, and is not to wait for another one while it has the place.
    redis.call('HSET', KEYS.record, 'reserved', string.format('%s %.0f %s', epoch, now_ms, lapses))
  end
  redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, id)
  if ARGV.is_sent == '1' then
    redis.call('LPUSH', KEYS.queue, record[7])
    return {'sent'}
  end
  return {'send', record[7], redis.call('ZSCORE', KEYS.due, id), record[8] or ''}
end
if not is_new then
  return {'full', table.concat(values, '\n'), table.concat(before, '\n')}
end
if is_attempt then
  redis.call('HDEL', KEYS.record, 'owner', 'token', 'pid', 'claimed_ms', 'heir')
  redis.call('HDEL', KEYS.claims, id)
  redis.call('HSET', KEYS.record, 'state', 'parked', 'attempt', attempt - 1,
    'spent', string.sub((record[11] or ' ') .. ARGV.token .. ' ', -200))
  if record[12] then
    -- An operator has named other workers meanwhile.
    redis.call('HSET', KEYS.record, 'epoch', record[12])
    redis.call('HDEL', KEYS.record, 'moved', 'next_epoch')
  end
end
redis.call('HDEL', KEYS.record, 'list')
redis.call('HSET', KEYS.record, 'waiting_for', waits_for, 'places', places, 'object', ARGV.object)
if ARGV.is_sent == '1' and not record[12] then
  redis.call('HSET', KEYS.record, 'list', KEYS.queue)
end
redis.call('ZADD', KEYS.line, score, id)
-- Whoever is not the first is looked at seldom: the one before it has it looked at.
local wait_ms = ARGV.due_in_ms * (redis.call('ZRANGE', KEYS.line, 0, 0)[1] == id and 1 or 64)
local first = FIRST.places
local left_ms = redis.call('PTTL', KEYS[first])
if left_ms > 0 and left_ms < wait_ms then
  wait_ms = left_ms
end
redis.call('ZADD', KEYS.due, now_ms + (record[10] and 0 or wait_ms), id)
return {'standing', before[1] or string.match(table.concat(values, '\n'), '^%s*%w+:([^\n]*)') or ''}
