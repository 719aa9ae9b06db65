--[[
cancel: end a task that nobody runs: it was revoked, has expired, or was purged; or its sending raised; or an operator or
retention removes a dead letter for good. Its object is freed.

Moves     queued | waiting | dead -> absent
          queued | waiting | dead -> waiting   (an attempt that was taken from it has not been stopped yet)
          held by this task -> free
KEYS.record             task:<id>       HASH
KEYS.dead               dead            ZSET
KEYS.meta               meta            HASH where trimmed letters are counted
ARGV.id
ARGV.seen               epoch of the publication that is called off; of a dead letter when it was buried, in ms, "" for
                        whichever is there; "stop": what was called off is let go
ARGV.is_letter: flag    "1": it is a dead letter; "": it is none
ARGV.is_unsent: flag    "1": only if it was never claimed, and no call was answered with it
ARGV.if_running?        "finish": what runs is not run again, should its attempt end without an outcome; "stop", "kill":
                        nor that attempt to its end: its worker hears with its next beat to ask its process to stop, or
                        to kill it; "": nothing is noted
ARGV.is_surplus: flag   "1": it goes because there are too many letters, which is counted
ARGV.due_in_ms: int     when to look whether the attempt has been stopped
ARGV.outcome+           a state of Celery's, or a word; not given for what nothing happened to, which is not kept
ARGV.by+                who ended it, and why
ARGV.most+: int         how many are kept
Returns   {"cancelled"} | {"running", owner} | {"dead"} | {"stale"} | {"gone"} | {"troubled"}
          "stale": it is another publication, or no longer what was seen; "gone" also of what was called off before, while
          the attempt still runs; "troubled": it has a history, and is to be kept; nothing was changed
Repeated  gone -> cancelled
Cost      O(log N) in dead letters, and in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'claim', 'waiting_for', 'object', 'history', 'since_ms',
  'attempt')
local state, is_letter, is_off = found[1], ARGV.is_letter == '1', found[4] == 'stop'
if not state or (is_off and (is_letter or still_stopping(found[3]))) then
  if is_letter then redis.call('ZREM', KEYS.dead, ARGV.id) end
  return {'gone'}
end
if state == 'dead' and not is_letter then
  return {'dead'}
end
local seen = is_letter and found[7] or is_off and 'stop' or found[2] or ''
if (is_letter and state ~= 'dead') or (ARGV.seen ~= seen and not (is_letter and ARGV.seen == ''))
    or (ARGV.is_unsent == '1' and found[8]) then
  return {'stale'}
end
if state == 'running' then
  local token, _, _, owner = parts_of(found[3])
  if ARGV.if_running ~= '' then redis.call('HSET', KEYS.record, 'revoked', '1') end
  if ARGV.if_running == 'stop' or ARGV.if_running == 'kill' then
    redis.call('HSET', KEYS.ledger .. 'stops:' .. owner, ARGV.id, found[8] .. ' ' .. ARGV.if_running .. ' ' .. token)
  end
  return {'running', owner}
end
if found[6] and not ARGV.outcome then
  return {'troubled'}
end
local known = ARGV.outcome and redis.call('HMGET', KEYS.record, 'name', 'published_ms', 'losses')
if is_letter then
  take_out(KEYS.record, ARGV.id)
  if ARGV.is_surplus == '1' then
    redis.call('HINCRBY', KEYS.meta, 'trimmed', 1)
    redis.call('HSET', KEYS.meta, 'trimmed_ms', string.format('%.0f', now_ms))
  end
else
  leave(ARGV.id, found[4])
end
call_off(still_stopping(found[3]), found[5], ARGV.due_in_ms)
if known then
  keep_ended({attempt = found[8], name = known[1], published_ms = known[2], losses = known[3], history = found[6]})
end
return {'cancelled'}
