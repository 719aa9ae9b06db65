--[[
functions: code that several scripts share. Each script is loaded with the functions that it calls.

They build keys from what they read. All keys of a namespace begin with `KEYS.ledger`, and so share one slot.
]]

-- Return the ledger's time in ms and in us, and the server's in ms. The ledger's clock never goes back behind the time that
-- was last kept.
local function clock()
  local time = redis.call('TIME')
  local server_us = time[1] * 1000000 + time[2]
  local kept = redis.call('HMGET', KEYS.ledger .. 'clock', 'offset_ms', 'latest_ms')
  local now_us = math.max(server_us + (kept[1] or 0) * 1000, (kept[2] or 0) * 1000)
  return math.floor(now_us / 1000), now_us, math.floor(server_us / 1000)
end

-- Keep the ledger's time, and return it. If the server's clock is set back, the ledger's goes on from this time.
local function keep_clock()
  local now_ms, _, server_ms = clock()
  redis.call('HSET', KEYS.ledger .. 'clock', 'offset_ms', string.format('%.0f', now_ms - server_ms),
    'latest_ms', string.format('%.0f', now_ms))
  return now_ms
end

-- Return the id of the server's process; '' if the server does not tell it.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end

-- Return the generation that messages are stamped with. A new one is a time and not a count: on a server that lost all it
-- had, old messages must not look like new ones. One that lies a day ahead was forged by a message, and is replaced.
local function current_generation(now_ms)
  local meta = KEYS.ledger .. 'meta'
  local generation = redis.call('HGET', meta, 'generation')
  if not generation or tonumber(generation) > now_ms + 86400000 then
    generation = string.format('%.0f', now_ms)
    redis.call('HSET', meta, 'generation', generation, 'run_id', run_id())
  end
  return generation
end

-- Return the token, the pid, the time in ms and the worker of a claim, and the tokens of those before it.
local function parts_of(claim)
  local pid, claimed_ms, worker, token, spent = string.match(claim or '', '^(%d+) (%d+) ([^\n]*)\n([^\n]*)\n([^\n]*)')
  return token, pid, claimed_ms, worker, spent
end

-- Return what a claim notes under a word; nil for nothing.
local function noted(claim, word)
  return string.match(claim or '', '\n' .. word .. ' ([^\n]*)')
end

-- Return a claim with a note, in place of what it noted under that word; without one where it is not given.
local function with_note(claim, word, text)
  return string.gsub(claim, '\n' .. word .. ' [^\n]*', '') .. (text and '\n' .. word .. ' ' .. text or '')
end

-- Return what to answer to an attempt that is not the current one; nil for the current one.
local function refusal(state, attempt, claim)
  if not state then return {'gone'} end
  if state ~= 'running' or attempt ~= ARGV.attempt or string.match(claim, '\n([^\n]*)') ~= ARGV.token then
    return {'fenced', state}
  end
end

-- Return whether the attempt with this token is over, of a task that does not run: a late copy of its claim begins nothing.
local function is_spent(claim)
  local token, _, _, _, spent = parts_of(claim)
  return token and ARGV.token ~= '' and string.find(spent .. ' ' .. token .. ' ', ' ' .. ARGV.token .. ' ', 1, true)
end

-- Remove the claim of an attempt that has ended in another way. Otherwise its worker would never be forgotten.
local function drop_claim()
  local attempt, token = string.match(redis.call('HGET', KEYS.claims, ARGV.id) or '', '^(%d+) %d+ (.*)$')
  if attempt == ARGV.attempt and token == ARGV.token then redis.call('HDEL', KEYS.claims, ARGV.id) end
end

-- Return a history with one more entry, as JSON, without the oldest. *claim*: that of the attempt which ended.
local function longer(history, what, attempt, cause, claim, owner)
  local entries, _, pid, claimed_ms, worker = cjson.decode(history or '[]'), parts_of(claim)
  entries[#entries + 1] = {at_ms = clock(), what = what, attempt = tonumber(attempt or 0), cause = cause,
    owner = owner or worker or '', pid = tonumber(pid or 0), claimed_ms = tonumber(claimed_ms or 0)}
  while #entries > 20 do table.remove(entries, 1) end
  return cjson.encode(entries)
end

-- Keep what happened to a task that has ended, for people, and remove the oldest of what is kept.
local function keep_ended(about)
  local ended, ended_at = KEYS.ledger .. 'ended', KEYS.ledger .. 'ended_at'
  about.outcome, about.by, about.ended_ms = ARGV.outcome, ARGV.by, clock()
  redis.call('HSET', ended, ARGV.id, cjson.encode(about))
  redis.call('ZADD', ended_at, about.ended_ms, ARGV.id)
  local spare = redis.call('HLEN', ended) - ARGV.most
  if spare > 0 then
    for _, id in ipairs(redis.call('ZRANGE', ended_at, 0, math.min(spare, 10) - 1)) do
      redis.call('HDEL', ended, id)
      redis.call('ZREM', ended_at, id)
    end
  end
end

-- Store the result that was given and tell who waits for it, unless one is there that is kept; *keeps_any*: where it is not
-- known how that begins, any is. Return false if its database cannot be reached from here.
local function store_result(keeps_any)
  if #ARGV.value <= 700 then
    -- A full server runs the rest of a script that has removed something.
    redis.call('HDEL', KEYS.record, '')
  end
  if ARGV.db ~= '' and redis.pcall('SELECT', ARGV.db)['err'] then return false end
  local how = ARGV.expires_seconds == '0' and {} or {'EX', ARGV.expires_seconds}
  -- Mostly there is none. One that is longer a full Redis refuses, also where one is there that is kept.
  local is_new = #ARGV.value <= 700 and redis.call('SET', KEYS.result, ARGV.value, 'NX', unpack(how))
  local before = not is_new and redis.call('GET', KEYS.result)
  if not before or (ARGV.final == '' and not keeps_any) or string.sub(before, 1, #ARGV.final) ~= ARGV.final then
    if not is_new then redis.call('SET', KEYS.result, ARGV.value, unpack(how)) end
    redis.call('PUBLISH', KEYS.result, ARGV.value)
  end
  if ARGV.db ~= '' then redis.call('SELECT', ARGV.own_db) end
  return true
end

-- Return the worker that has yet to stop the last attempt of the task; nil if there is none, or if it is dead or forgotten.
local function still_stopping(claim)
  local _, _, _, worker = parts_of(noted(claim, 'stopping') and claim)
  return worker and redis.call('HGET', KEYS.ledger .. 'worker:' .. worker, 'state') == 'alive' and worker or nil
end

-- Let the task wait until a moment, which is that of its *reason*. If it is the first to go on, ring for the waker.
local function wait_until(id, due_ms, reason)
  local later, bell = KEYS.ledger .. 'later', KEYS.ledger .. 'bell'
  -- Otherwise it would wait too long if the server's clock were set back before anybody kept the time.
  keep_clock()
  redis.call('HSET', KEYS.ledger .. 'task:' .. id, 'state', 'waiting', 'waiting_for', reason)
  redis.call('ZADD', KEYS.ledger .. 'due', due_ms, id)
  redis.call('ZADD', later, due_ms, id)
  if redis.call('ZRANGE', later, 0, 0)[1] == id and redis.call('EXISTS', bell) == 0 then
    redis.call('LPUSH', bell, '')
    redis.call('PEXPIRE', bell, 10000)
  end
end

-- Return the score of a task in a line: the time of its publication, and within a millisecond its number at its sender.
local function turn_of(published_ms, epoch)
  return published_ms + (tonumber(string.match(epoch or '', '%-(%d+)$')) or 0) % 4096 / 4096
end

-- Put the message of a task that waits no more into its list. Return false if it has to be sent in another way, as it goes
-- elsewhere. *is_first*: put it before what is in the list.
local function let_out(id, record, due_in_ms, is_first)
  local told = redis.call('HMGET', record, 'list', 'message', 'claim')
  if not told[1] or still_stopping(told[3]) then return false end
  redis.call('HDEL', record, 'waiting_for', 'list', 'resends')
  local now_ms = clock()
  redis.call('HSET', record, 'state', 'queued', 'since_ms', now_ms)
  redis.call('ZADD', KEYS.ledger .. 'due', now_ms + due_in_ms, id)
  local pushed = is_first and redis.pcall('RPUSH', told[1], told[2]) or redis.pcall('LPUSH', told[1], told[2])
  if type(pushed) ~= 'number' then
    -- Nobody else has to pay for a list that is none, or that this user may not write: a pass sends it.
    redis.call('HSET', record, 'resends', 'unsent')
    redis.call('ZADD', KEYS.ledger .. 'due', now_ms, id)
  end
  return true
end

-- Return whether a task in this state is queued, or waits to be queued, and not for an end.
local function is_to_run(state, waiting_for)
  return (state == 'queued' or state == 'waiting') and waiting_for ~= 'canvas' and waiting_for ~= 'stop'
end

-- Return whether the task that has a lock has ended, so that others may take it.
local function is_over(holder)
  local found = redis.call('HMGET', KEYS.ledger .. 'task:' .. holder, 'state', 'waiting_for', 'claim')
  return (not found[1] or found[1] == 'dead' or found[2] == 'stop') and not still_stopping(found[3])
end

-- Return a free place of an object, or the one that the task has already; else nil, and what the locks say.
local function free_place(object, places, id)
  local free, values = nil, {}
  for n = 1, places do
    local place = n == 1 and object or object .. '#' .. n
    local value = redis.call('GET', KEYS.ledger .. 'lock:' .. place)
    local holder = string.match(value or '', '^%d+:(.*)$')
    if holder == id then return place end
    if not free and (not value or (holder and is_over(holder))) then free = place end
    values[n] = value
  end
  return free, values
end

-- Give the free places of an object to the tasks that stand in its line, up to the task *before*. Return the first task
-- that still stands there. *places*: how many there are by now, as far as the caller knows. Else the record of the first
-- says it, and those behind it hear it, but for a task whose call says how many.
local function let_in(object, before, places)
  local line, due = KEYS.ledger .. 'waiting:object ' .. object, KEYS.ledger .. 'due'
  for _ = 1, 1000 do
    local id = redis.call('ZRANGE', line, 0, 0)[1]
    if not id or id == before then return id end
    local record = KEYS.ledger .. 'task:' .. id
    local found = redis.call('HMGET', record, 'waiting_for', 'room', 'revoked', 'epoch', 'reserved')
    local stands = found[1] == 'object ' .. object
    if stands and not found[3] then
      local known, due_in_ms, own = string.match(found[2] or '1 60000', '^(%S+) (%S+)(.*)$')
      if own == '' then
        places = places or known
        if places ~= known then redis.call('HSET', record, 'room', places .. ' ' .. due_in_ms) end
        known = places
      end
      local place = free_place(object, tonumber(known), id)
      if not place then
        -- The first is looked at soon. A place that is kept after a success is free by itself.
        local left_ms = redis.call('PTTL', KEYS.ledger .. 'lock:' .. object)
        redis.call('ZADD', due, 'XX', 'LT', clock() + (left_ms > 0 and math.min(left_ms, due_in_ms) or due_in_ms), id)
        return id
      end
      redis.call('SET', KEYS.ledger .. 'lock:' .. place, '0:' .. id)
      redis.call('HSET', record, 'object', place)
      local epoch, lapses = string.match(found[5] or '', '^(%S*) %d+ (%d+)$')
      if epoch == found[4] then
        -- It has had its moment of a limited rate, and is not to wait for another one while it has the place.
        redis.call('HSET', record, 'reserved', string.format('%s %.0f %s', epoch, clock(), lapses))
      end
      redis.call('HDEL', record, 'waiting_for', 'room')
      if not let_out(id, record, due_in_ms) then wait_until(id, (clock()), 'time') end
    elseif stands then
      -- It was revoked: a pass calls it off.
      redis.call('ZADD', due, 'XX', 'LT', clock(), id)
    end
    redis.call('ZREM', line, id)
  end
  return redis.call('ZRANGE', line, 0, 0)[1]
end

-- Take a task out of the line that its record names. Others may have waited behind it, so they are let in.
local function leave(id, reason)
  redis.call('ZREM', KEYS.ledger .. 'later', id)
  if reason == 'workers' then
    redis.call('HDEL', KEYS.ledger .. 'waiting:workers', id)
  elseif reason and redis.call('ZREM', KEYS.ledger .. 'waiting:' .. reason, id) == 1 then
    local object = string.match(reason, '^object (.*)$')
    if object then let_in(object) end
  end
end

-- Return a place that a task may take: its own, or a free one if nobody stands before it. Else nil, and who is in its way.
local function place_for(id, object, places, turn, is_own)
  local line = KEYS.ledger .. 'waiting:object ' .. object
  local place, values = free_place(object, tonumber(places), id)
  -- Its own comes alone.
  if values and redis.call('EXISTS', line) == 1 then
    redis.call('ZADD', line, turn, id)
    local first = let_in(object, id, is_own == '' and places or nil)
    redis.call('ZREM', line, id)
    if first ~= id then return nil, first end
    place, values = free_place(object, tonumber(places), id)
  end
  return place, not place and string.match(values[1] or '', '^%w+:(.*)$') or nil
end

-- Put a task into the line of what it waits for. *turn*: its score; for "workers", which ones may run it. *list*: where its
-- message goes after that; "" if it has to be sent in another way.
local function stand(id, record, reason, turn, list)
  redis.call('HDEL', record, 'list', 'resends')
  redis.call('HSET', record, 'state', 'waiting', 'since_ms', (clock()), 'waiting_for', reason)
  if list ~= '' then redis.call('HSET', record, 'list', list) end
  if reason == 'workers' then
    redis.call('HSET', KEYS.ledger .. 'waiting:workers', id, turn)
  else
    redis.call('ZADD', KEYS.ledger .. 'waiting:' .. reason, turn, id)
  end
end

-- Put a task into the line of an object.
local function stand_for(id, record, object, places, turn, is_own, list, due_in_ms)
  stand(id, record, 'object ' .. object, turn, list)
  redis.call('HDEL', record, 'object')
  redis.call('HSET', record, 'room', places .. ' ' .. due_in_ms .. (is_own == '1' and ' own' or ''))
  -- Only the first is looked at often.
  local is_first = redis.call('ZRANGE', KEYS.ledger .. 'waiting:object ' .. object, 0, 0)[1] == id
  local wait_ms, left_ms = due_in_ms * (is_first and 1 or 64), redis.call('PTTL', KEYS.ledger .. 'lock:' .. object)
  redis.call('ZADD', KEYS.ledger .. 'due', clock() + (left_ms > 0 and math.min(wait_ms, left_ms) or wait_ms), id)
end

-- Free the place that a task has, or keep it locked for some ms after a success. Then let in who stands in the line.
local function free(id, place, keep_ms, places)
  local lock = KEYS.ledger .. 'lock:' .. (place or '')
  if place and string.match(redis.call('GET', lock) or '', '^%d+:(.*)$') == id then
    if keep_ms and keep_ms ~= '0' then
      redis.call('SET', lock, 'kept:' .. id, 'PX', keep_ms)
    else
      redis.call('DEL', lock)
    end
    let_in(string.match(place, '^[^#]*'), nil, places)
  end
end

-- Return the name of a group of dead letters, and what stands in the index of groups for one of them.
local function in_group(group, buried_ms, id)
  local name = string.sub(redis.sha1hex(group), 1, 12)
  return name, string.format('%s %015.0f %s', name, buried_ms, id)
end

-- Make the task a dead letter, in the group of those that died of the same, and free its *place* if one is given. *cause*:
-- of the last loss, without what differs from one to the next; or *kind*: that of what was raised.
local function make_letter(record, id, is_owed, place, cause, kind, reason, exception, ...)
  local now_ms, due = clock(), KEYS.ledger .. 'due'
  local letter = table.concat({reason, cause, kind, ''}, '\n')
  local group = letter .. (redis.call('HGET', record, 'name') or '')
  local name, member = in_group(group, now_ms, id)
  redis.call('HSET', record, 'state', 'dead', 'since_ms', now_ms, 'letter', letter .. exception, ...)
  redis.call('ZADD', KEYS.ledger .. 'dead', now_ms, id)
  redis.call('ZADD', KEYS.ledger .. 'grouped', 0, member)
  redis.call('HSET', KEYS.ledger .. 'groups', name, group)
  if is_owed then
    redis.call('HSET', record, 'owed', '')
    redis.call('ZADD', due, now_ms, id)
  else
    redis.call('ZREM', due, id)
  end
  if place then
    redis.call('HDEL', record, 'object')
    free(id, place)
  end
end

-- Take a dead letter out of the dead letters, and out of its group.
local function take_out(record, id)
  local found = redis.call('HMGET', record, 'letter', 'since_ms', 'name')
  local name, member = in_group((string.match(found[1] or '', '^.-\n.-\n.-\n') or '') .. (found[3] or ''), found[2], id)
  redis.call('ZREM', KEYS.ledger .. 'dead', id)
  redis.call('ZREM', KEYS.ledger .. 'grouped', member)
  if redis.call('ZLEXCOUNT', KEYS.ledger .. 'grouped', '[' .. name .. ' ', '(' .. name .. '!') == 0 then
    redis.call('HDEL', KEYS.ledger .. 'groups', name)
  end
  redis.call('HDEL', record, 'letter', 'traceback', 'owed')
end

-- End a task that nobody runs. If an attempt has yet to be stopped, its number and place stay reserved, and the next task
-- of this id waits for that.
local function call_off(is_stopping, place, due_in_ms)
  local due = KEYS.ledger .. 'due'
  redis.call('ZREM', due, ARGV.id)
  if is_stopping then
    redis.call('HDEL', KEYS.record, 'epoch', 'losses', 'history', 'resends', 'deaths', 'revoked', 'room')
    redis.call('HSET', KEYS.record, 'state', 'waiting', 'waiting_for', 'stop', 'since_ms', (clock()))
    redis.call('ZADD', due, clock() + due_in_ms, ARGV.id)
  else
    redis.call('DEL', KEYS.record)
    free(ARGV.id, place)
  end
end
