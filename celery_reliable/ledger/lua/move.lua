--[[
move: an operator says which workers may run a task from now on. That is another publication of it: what was sent
before is stale.

An attempt that runs on a worker which may not run the task is over, and costs no loss; its worker has to stop it. One
on a worker that may goes on, and what is said here counts for the attempts after it.

Moves     queued -> queued             (it is due, to be sent to one of them)
          waiting -> waiting           (likewise, if it waited for a worker)
          running(attempt) -> queued   (its worker may not run it any more)
KEYS.record             task:<id>         HASH
KEYS.due                due               ZSET
KEYS.claims             claims:<worker>   HASH of the attempt's worker; "none" where none ran that was to be stopped
KEYS.taken              taken:<worker>    HASH likewise
ARGV.id
ARGV.seen               epoch of the publication that was seen, or of the one that follows its attempt
ARGV.epoch              names the new publication
ARGV.message            of that
ARGV.named              which workers may run it, as JSON; "{}" for any
ARGV.attempt?: int      that was seen to run; "" for none
ARGV.token?             of its claim
ARGV.is_stopped: flag   "1": its worker may not run it; else ""
ARGV.due_in_ms: int     when to look whether that has stopped it
ARGV.by                 who says so
Returns   {"moved"} | {"changed"} | {"absent"}
          "changed": it went on meanwhile, or it is neither queued nor running, nor waits in the waiting room
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'attempt', 'claim', 'waiting_for', 'history', 'spent', 'moved')
local state, next_epoch = found[1], string.match(found[8] or '', '^%S+')
local token, _, _, owner = parts_of(found[4])
if not state then
  return {'absent'}
end
if found[2] == ARGV.epoch or next_epoch == ARGV.epoch then
  return {'moved'}
end
if (next_epoch or found[2]) ~= ARGV.seen or (state == 'running') ~= (ARGV.attempt ~= '')
    or state == 'dead' or found[5] == 'canvas' or found[5] == 'stop' then
  return {'changed'}
end
if state == 'running' and (found[3] ~= ARGV.attempt or token ~= ARGV.token) then
  return {'changed'}
end
redis.call('HSET', KEYS.record, 'message', ARGV.message, 'history',
  longer(found[6], 'moved', found[3], ARGV.named, nil, ARGV.by))
if state == 'running' and ARGV.is_stopped == '' then
  redis.call('HSET', KEYS.record, 'moved', ARGV.epoch .. ' ' .. ARGV.named)
  return {'moved'}
end
redis.call('HDEL', KEYS.record, 'resends', 'moved', 'list')
redis.call('HSET', KEYS.record, 'epoch', ARGV.epoch)
if state == 'running' then
  close(found[7], 'heir')
  redis.call('HSET', KEYS.record, 'state', 'queued', 'since_ms', now_ms, 'unsent', '1', 'stopping',
    ARGV.attempt .. ' ' .. owner .. '\n' .. ARGV.token)
  redis.call('HSET', KEYS.taken, ARGV.id, ARGV.attempt .. ' ' .. ARGV.token)
  redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
elseif state == 'queued' then
  redis.call('HSET', KEYS.record, 'unsent', '1')
  redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
elseif found[5] == 'workers' then
  redis.call('ZADD', KEYS.due, now_ms, ARGV.id)
end
return {'moved'}
