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
ARGV.id
ARGV.attempt: int
ARGV.token                   of the claim: an id that is published again after it ended begins at 1 again
ARGV.value?: bytes           of the result; "" when nothing is to be stored
ARGV.final?                  a result that begins with this text is kept as it is
ARGV.expires_seconds: int    of the result; 0: never
ARGV.db?: int                of the result; "" when it is the ledger's
ARGV.own_db: int             the ledger's
ARGV.keep_ms: int            for how long the object stays locked after this success; 0: it is freed
ARGV.places?: int            how many the object has; "": as those say who wait for one
ARGV.outcome+                a state of Celery's; not given for what nothing happened to, which is not kept
ARGV.by+                     who ended it; "" for the attempt itself
ARGV.most+: int              how many are kept
Returns   {"settled"} | {"fenced", state} | {"gone"} | {"elsewhere"} | {"troubled"}
          "gone" to a repeated call means that the first one settled; "elsewhere": that database cannot be reached from
          here; "troubled": it has a history, and is to be kept; nothing was changed by either
Repeated  gone -> settled
Full      done, but for a result that takes more room than the record
Cost      O(log N) in records that are due some time, O(size of the result)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim', 'object', 'history')
local refused = refusal(unpack(found, 1, 3))
if refused then return refused end
if found[5] and not ARGV.outcome then
  return {'troubled'}
end
if ARGV.value ~= '' and not store_result(true) then
  return {'elsewhere'}
end
local known = ARGV.outcome and redis.call('HMGET', KEYS.record, 'name', 'published_ms', 'losses')
redis.call('DEL', KEYS.record)
redis.call('ZREM', KEYS.due, ARGV.id)
redis.call('HDEL', KEYS.claims, ARGV.id)
free(ARGV.id, found[4], ARGV.keep_ms, ARGV.places ~= '' and ARGV.places or nil)
if known then
  local _, pid, claimed_ms, owner = parts_of(found[3])
  keep_ended({attempt = ARGV.attempt, name = known[1], published_ms = known[2], losses = known[3], owner = owner,
    pid = pid, claimed_ms = claimed_ms, history = found[5]})
end
return {'settled'}
