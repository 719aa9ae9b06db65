--[[
cancel: a task that nobody runs is called off: revoked, expired or purged; its object is freed with it.

Moves     queued | parked | waiting -> absent
          queued | parked -> waiting   (an attempt that was taken from it has not been stopped yet)
          held by this task -> free
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   lock     STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   epoch        of the publication that is called off; "" for whichever is current
ARGV[3]   due_in_ms    when to look whether the attempt has been stopped
ARGV[4]   is_revoked   "1": what runs is not run again, should its attempt end without an outcome
ARGV[5]   object       whose lock is given; "" for none
Returns   {"cancelled"} | {"running", owner} | {"dead"} | {"stale"} | {"gone"} | {"object", object}
          "gone" also of what was called off before, while the attempt still runs; "object": the record notes
          another one than was given, and nothing was changed
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'owner', 'stopping', 'called_off', 'object')
if not found[1] or (found[4] and found[5]) then
  return {'gone'}
end
if found[1] == 'running' then
  if ARGV[4] == '1' then
    redis.call('HSET', KEYS[1], 'revoked', '1')
  end
  return {'running', found[3]}
end
if found[1] == 'dead' then
  return {'dead'}
end
if ARGV[2] ~= '' and found[2] ~= ARGV[2] then
  return {'stale'}
end
if not found[4] then
  if found[6] and found[6] ~= ARGV[5] then
    return {'object', found[6]}
  end
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  if ARGV[5] ~= '' and string.match(redis.call('GET', KEYS[3]) or '', '^%d+:(.*)$') == ARGV[1] then
    redis.call('DEL', KEYS[3])
  end
  return {'cancelled'}
end
-- An attempt still runs.  Its number and its object stay its own, and the next task of this id waits for it.
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'state', 'waiting', 'called_off', '1')
redis.call('HDEL', KEYS[1], 'epoch', 'ended', 'losses', 'history', 'cause', 'resends', 'unsent', 'stored', 'relied', 'kept',
  'suspect', 'spared', 'openings', 'waits', 'alone', 'revoked')
redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], ARGV[1])
return {'cancelled'}
