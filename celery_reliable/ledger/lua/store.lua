--[[
store: an attempt stores its outcome, and is settled some steps later: its chord is told in between, or hooks run. Or it
stores that it is retried, which is published by then. Or a burial stores its failure.

A worker that was cut off may have sent this long before it arrives, and be declared dead by then. It does not replace
what its successor has stored, nor does a retry whose next attempt was quicker, or a burial whose letter was replayed.

KEYS[1]   record   HASH
KEYS[2]   result   STRING   published as well, on a channel of this name
ARGV[1]   attempt
ARGV[2]   token    of the claim; of a burial: buried_ms
ARGV[3]   value    of the result
ARGV[4]   final    a result that begins with this text is kept as it is; "" for none
ARGV[5]   expires_seconds   of the result; 0: never
ARGV[6]   db       of the result; "" when it is the ledger's
ARGV[7]   own_db   the ledger's
ARGV[8]   after    "": the attempt runs; "retry": it has published itself again, and the next one has not begun;
                   "burial": the task is dead
Returns   {"stored"} | {"fenced", state} | {"gone"} | {"elsewhere"}
          "gone": there is no record, as the task ended, or the server lost it; "elsewhere": that database cannot be
          reached from here; nothing was changed by either
Cost      O(size of the result)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token', 'buried_ms')
if not found[1] then
  return {'gone'}
end
local attempt, is_current = found[2], found[1] == 'running' and found[3] == ARGV[2]
if ARGV[8] == 'retry' then
  is_current = found[1] == 'queued' or found[1] == 'parked'
elseif ARGV[8] == 'burial' then
  -- No attempt of a task began whose message nobody could read.
  attempt, is_current = attempt or '0', found[1] == 'dead' and found[4] == ARGV[2]
end
if not is_current or attempt ~= ARGV[1] then
  return {'fenced', found[1]}
end
if #ARGV[3] <= 700 then
  -- As in settle.
  redis.call('HDEL', KEYS[1], '')
end
if ARGV[6] ~= '' and redis.pcall('SELECT', ARGV[6])['err'] then
  return {'elsewhere'}
end
local before = ARGV[4] ~= '' and redis.call('GET', KEYS[2])
if not before or string.sub(before, 1, #ARGV[4]) ~= ARGV[4] then
  if ARGV[5] == '0' then
    redis.call('SET', KEYS[2], ARGV[3])
  else
    redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[5])
  end
  redis.call('PUBLISH', KEYS[2], ARGV[3])
end
if ARGV[6] ~= '' then
  redis.call('SELECT', ARGV[7])
end
return {'stored'}
