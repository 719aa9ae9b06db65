--[[
move: an operator says which workers may run a task from now on. That is another publication of it: what was sent
before is stale.

An attempt that runs on a worker which may not run the task is over, and costs no loss; its worker has to stop it. One
on a worker that may goes on, and what is said here counts for the attempts after it.

Moves     queued -> queued             (it is due, to be sent to one of them)
          parked -> parked             (likewise, if it waited for a worker)
          running(attempt) -> queued   (its worker may not run it any more)
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   claims   HASH   of the attempt's worker; "none" where none ran that was to be stopped
KEYS[4]   taken    HASH   likewise
ARGV[1]   id
ARGV[2]   seen        epoch of the publication that was seen, or of the one that follows its attempt
ARGV[3]   epoch       names the new publication
ARGV[4]   message     of that
ARGV[5]   named       which workers may run it, as JSON; "{}" for any
ARGV[6]   attempt     that was seen to run; "" for none
ARGV[7]   token       of its claim
ARGV[8]   is_stopped  "1": its worker may not run it; else ""
ARGV[9]   due_in_ms   when to look whether that has stopped it
ARGV[10]  by          who says so
Returns   {"moved"} | {"changed"} | {"absent"}
          "changed": it went on meanwhile, or it is neither queued, parked nor running
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'attempt', 'token', 'waiting_for', 'history', 'owner',
  'spent', 'pid', 'claimed_ms', 'next_epoch', 'called_off')
local state = found[1]
if not state then
  return {'absent'}
end
if found[2] == ARGV[3] or found[11] == ARGV[3] then
  return {'moved'}
end
if (found[11] or found[2]) ~= ARGV[2] or (state == 'running') ~= (ARGV[6] ~= '')
    or (state ~= 'running' and state ~= 'queued' and state ~= 'parked') then
  return {'changed'}
end
if state == 'running' and (found[3] ~= ARGV[6] or found[4] ~= ARGV[7]) then
  return {'changed'}
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local history = cjson.decode(found[6] or '[]')
history[#history + 1] = {at_ms = now_ms, what = 'moved', attempt = tonumber(found[3] or 0), cause = ARGV[5],
  owner = ARGV[10]}
while #history > 20 do table.remove(history, 1) end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'message', ARGV[4], 'history', cjson.encode(history))
if state == 'running' and ARGV[8] == '' then
  redis.call('HSET', KEYS[1], 'moved', ARGV[5], 'next_epoch', ARGV[3])
  return {'moved'}
end
redis.call('HDEL', KEYS[1], 'resends', 'moved', 'next_epoch', 'list')
redis.call('HSET', KEYS[1], 'epoch', ARGV[3])
if state == 'running' then
  local claim = ARGV[6] .. ' ' .. ARGV[7]
  redis.call('HDEL', KEYS[1], 'owner', 'token', 'pid', 'claimed_ms', 'heir')
  redis.call('HDEL', KEYS[3], ARGV[1])
  redis.call('HSET', KEYS[1], 'state', 'queued', 'sent_ms', now_ms, 'unsent', '1', 'ended', ARGV[6],
    'spent', string.sub((found[8] or ' ') .. ARGV[7] .. ' ', -200), 'stopping', claim, 'stopping_on', found[7])
  redis.call('HSET', KEYS[4], ARGV[1], claim)
  redis.call('ZADD', KEYS[2], now_ms + ARGV[9], ARGV[1])
elseif state == 'queued' then
  redis.call('HSET', KEYS[1], 'unsent', '1')
  redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
elseif found[5] == 'workers' then
  redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
end
return {'moved'}
