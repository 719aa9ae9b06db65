--[[
store: an attempt stores its outcome, and is settled some steps later: its chord is told in between, or hooks run. Or it
stores that it is retried, which is published by then.

A worker that was cut off may have sent this long before it arrives, and be declared dead by then. What its successor
has stored is not replaced by it, nor by a retry whose next attempt was quicker.

KEYS[1]   record   HASH
KEYS[2]   result   STRING   published as well, on a channel of this name
ARGV[1]   attempt
ARGV[2]   token    of the claim
ARGV[3]   value    of the result
ARGV[4]   final    a result that begins with this text is kept as it is; "" for none
ARGV[5]   expires_seconds   of the result; 0: never
ARGV[6]   db       of the result; "" when it is the ledger's
ARGV[7]   own_db   the ledger's
ARGV[8]   retried  "1": the attempt has published itself again, and the next one has not begun; else ""
Returns   {"stored"} | {"fenced", state} | {"gone"} | {"elsewhere"}
          "gone": there is no record, as the task ended, or the server lost it; "elsewhere": that database cannot be
          reached from here; nothing was changed by either
Cost      O(size of the result)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
local is_next = found[1] == 'queued' or found[1] == 'parked'
if found[2] ~= ARGV[1] or (ARGV[8] == '1' and not is_next)
    or (ARGV[8] ~= '1' and (found[1] ~= 'running' or found[3] ~= ARGV[2])) then
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
