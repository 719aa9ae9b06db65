--[[
settle: an attempt reports its outcome. Its result is stored where the results are on the same server, and its object
is freed or kept.

Moves     running(attempt) -> absent
          held by this task -> free | kept
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   claims   HASH   of the worker that runs the attempt
KEYS[4]   result   STRING   published as well, on a channel of this name; "none" when nothing is to be stored
KEYS[5]   lock     STRING   of the object; "none" for none
KEYS[6]   ended    HASH   where the task is to be kept; not given for what nothing happened to
KEYS[7]   ended_at ZSET   when each of these ended; likewise
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   token    of the claim: an id that is published again after it ended begins at 1 again
ARGV[4]   value    of the result; "" when nothing is to be stored
ARGV[5]   final    a result that begins with this text is kept as it is
ARGV[6]   expires_seconds   of the result; 0: never
ARGV[7]   db       of the result; "" when it is the ledger's
ARGV[8]   own_db   the ledger's
ARGV[9]   keep_ms  for how long the object stays locked after this success; 0: it is freed
ARGV[10]  object   whose lock is given; "" for none
ARGV[11]  outcome  with KEYS[6]: a state of Celery's
ARGV[12]  by       with KEYS[6]: who ended it; "" for the attempt itself
ARGV[13]  most     with KEYS[6]: how many are kept there
Returns   {"settled"} | {"fenced", state} | {"gone"} | {"elsewhere"} | {"object", object} | {"troubled"}
          "gone" to a repeated call means that the first one settled; "elsewhere": that database cannot be reached
          from here; "object": the record notes another one than was given; "troubled": it has a history, and KEYS[6] was not given; nothing was changed by any
          of the three
Cost      O(log N) in records that are due some time, O(size of the result)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token', 'object', 'history')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then
  return {'fenced', found[1]}
end
if found[4] and found[4] ~= ARGV[10] then
  return {'object', found[4]}
end
if found[5] and not KEYS[6] then
  return {'troubled'}
end
if ARGV[4] ~= '' then
  if #ARGV[4] <= 700 then
    -- A removal comes first, as in claim.  It removes nothing: the result takes no more room than the record.
    redis.call('HDEL', KEYS[1], '')
  end
  if ARGV[7] ~= '' and redis.pcall('SELECT', ARGV[7])['err'] then
    return {'elsewhere'}
  end
  local how = ARGV[6] == '0' and {} or {'EX', ARGV[6]}
  -- Mostly there is none. One that is longer a full Redis refuses, also where one is there that is kept.
  local is_new = #ARGV[4] <= 700 and redis.call('SET', KEYS[4], ARGV[4], 'NX', unpack(how))
  local before = not is_new and redis.call('GET', KEYS[4])
  if not before or string.sub(before, 1, #ARGV[5]) ~= ARGV[5] then
    if not is_new then
      redis.call('SET', KEYS[4], ARGV[4], unpack(how))
    end
    redis.call('PUBLISH', KEYS[4], ARGV[4])
  end
  if ARGV[7] ~= '' then
    redis.call('SELECT', ARGV[8])
  end
end
local known = KEYS[6] and redis.call('HMGET', KEYS[1], 'name', 'published_ms', 'losses', 'owner', 'pid', 'claimed_ms')
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
if ARGV[10] ~= '' and string.match(redis.call('GET', KEYS[5]) or '', '^%d+:(.*)$') == ARGV[1] then
  if ARGV[9] == '0' then
    redis.call('DEL', KEYS[5])
  else
    redis.call('SET', KEYS[5], 'kept:' .. ARGV[1], 'PX', ARGV[9])
  end
end
if known then
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('HSET', KEYS[6], ARGV[1], cjson.encode({outcome = ARGV[11], by = ARGV[12], ended_ms = now_ms,
    attempt = ARGV[2], name = known[1], published_ms = known[2], losses = known[3], owner = known[4],
    pid = known[5], claimed_ms = known[6], history = found[5]}))
  redis.call('ZADD', KEYS[7], now_ms, ARGV[1])
  local spare = redis.call('HLEN', KEYS[6]) - ARGV[13]
  if spare > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', '+inf', 'LIMIT', 0, math.min(spare, 10))) do
      redis.call('HDEL', KEYS[6], id)
      redis.call('ZREM', KEYS[7], id)
    end
  end
end
return {'settled'}
