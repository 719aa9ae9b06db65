--[[
settle: an attempt reports its outcome. Its result is stored where the results are on the same server, and its object
is freed or kept.

Moves     running(attempt) -> absent
          held by this task -> free | kept
KEYS.record                  task:<id>         HASH
KEYS.due                     due               ZSET
KEYS.claims                  claims:<worker>   HASH of the worker that runs the attempt
KEYS.result                  <result>          STRING published as well, on a channel of this name; "none" when
                                               nothing is to be stored
KEYS.lock                    lock:<object>     STRING of the object
KEYS.clock                   clock             HASH
KEYS.ended+                  ended             HASH where the task is to be kept; not given for what nothing happened
                                               to
KEYS.ended_at+               ended_at          ZSET when each of these ended; likewise
ARGV.id
ARGV.attempt: int
ARGV.token                   of the claim: an id that is published again after it ended begins at 1 again
ARGV.value?: bytes           of the result; "" when nothing is to be stored
ARGV.final?                  a result that begins with this text is kept as it is
ARGV.expires_seconds: int    of the result; 0: never
ARGV.db?: int                of the result; "" when it is the ledger's
ARGV.own_db: int             the ledger's
ARGV.keep_ms: int            for how long the object stays locked after this success; 0: it is freed
ARGV.object?                 whose lock is given; "" for none
ARGV.outcome+                with KEYS.ended: a state of Celery's
ARGV.by+                     with KEYS.ended: who ended it; "" for the attempt itself
ARGV.most+: int              with KEYS.ended: how many are kept there
Returns   {"settled"} | {"fenced", state} | {"gone"} | {"elsewhere"} | {"other_object", object_key} | {"troubled"}
          "gone" to a repeated call means that the first one settled; "elsewhere": that database cannot be reached from
          here; "other_object": the record notes another one than was given; "troubled": it has a history, and
          KEYS.ended was not given; nothing was changed by any of the three
Repeated  gone -> settled
Cost      O(log N) in records that are due some time, O(size of the result)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'token', 'object', 'history')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV.attempt or found[3] ~= ARGV.token then
  return {'fenced', found[1]}
end
if found[4] and found[4] ~= ARGV.object then
  return {'other_object', found[4]}
end
if found[5] and not KEYS.ended then
  return {'troubled'}
end
if ARGV.value ~= '' then
  if #ARGV.value <= 700 then
    -- A removal comes first, as in claim.  It removes nothing: the result takes no more room than the record.
    redis.call('HDEL', KEYS.record, '')
  end
  if ARGV.db ~= '' and redis.pcall('SELECT', ARGV.db)['err'] then
    return {'elsewhere'}
  end
  local how = ARGV.expires_seconds == '0' and {} or {'EX', ARGV.expires_seconds}
  -- Mostly there is none. One that is longer a full Redis refuses, also where one is there that is kept.
  local is_new = #ARGV.value <= 700 and redis.call('SET', KEYS.result, ARGV.value, 'NX', unpack(how))
  local before = not is_new and redis.call('GET', KEYS.result)
  if not before or string.sub(before, 1, #ARGV.final) ~= ARGV.final then
    if not is_new then
      redis.call('SET', KEYS.result, ARGV.value, unpack(how))
    end
    redis.call('PUBLISH', KEYS.result, ARGV.value)
  end
  if ARGV.db ~= '' then
    redis.call('SELECT', ARGV.own_db)
  end
end
local known = KEYS.ended and redis.call('HMGET', KEYS.record, 'name', 'published_ms', 'losses', 'owner', 'pid', 'claimed_ms')
redis.call('DEL', KEYS.record)
redis.call('ZREM', KEYS.due, ARGV.id)
redis.call('HDEL', KEYS.claims, ARGV.id)
if ARGV.object ~= '' and string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
  if ARGV.keep_ms == '0' then
    redis.call('DEL', KEYS.lock)
  else
    redis.call('SET', KEYS.lock, 'kept:' .. ARGV.id, 'PX', ARGV.keep_ms)
  end
end
if known then
  local now_ms = clock()
  redis.call('HSET', KEYS.ended, ARGV.id, cjson.encode({outcome = ARGV.outcome, by = ARGV.by, ended_ms = now_ms,
    attempt = ARGV.attempt, name = known[1], published_ms = known[2], losses = known[3], owner = known[4],
    pid = known[5], claimed_ms = known[6], history = found[5]}))
  redis.call('ZADD', KEYS.ended_at, now_ms, ARGV.id)
  local spare = redis.call('HLEN', KEYS.ended) - ARGV.most
  if spare > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS.ended_at, '-inf', '+inf', 'LIMIT', 0, math.min(spare, 10))) do
      redis.call('HDEL', KEYS.ended, id)
      redis.call('ZREM', KEYS.ended_at, id)
    end
  end
end
return {'settled'}
