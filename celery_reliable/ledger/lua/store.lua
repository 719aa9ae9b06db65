--[[
store: an attempt stores its outcome, and is settled some steps later: its chord is told in between, or hooks run.

A worker that was cut off may have sent this long before it arrives, and be declared dead by then. What its successor
has stored is not replaced by it.

KEYS[1]   record   HASH
KEYS[2]   result   STRING   published as well, on a channel of this name
ARGV[1]   attempt
ARGV[2]   token    of the claim
ARGV[3]   value    of the result
ARGV[4]   final    a result that begins with this text is kept as it is; "" for none
ARGV[5]   expires_seconds   of the result; 0: never
ARGV[6]   db       of the result; "" when it is the ledger's
ARGV[7]   own_db   the ledger's
Returns   {"stored"} | {"fenced", state} | {"gone"} | {"elsewhere"}
          "gone": there is no record, as the task ended, or the server lost it; "elsewhere": that database cannot be
          reached from here; nothing was changed by either
Cost      O(size of the result)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'token')
if not found[1] then
  return {'gone'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[1] or found[3] ~= ARGV[2] then
  return {'fenced', found[1]}
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
