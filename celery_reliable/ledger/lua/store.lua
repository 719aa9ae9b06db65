--[[
store: an attempt stores its outcome, and is settled some steps later: its chord is told in between, or hooks run. Or it
stores that it is retried, which is published by then. Or a burial stores its failure.

A worker that was cut off may have sent this long before it arrives, and be declared dead by then. It does not replace
what its successor has stored, nor does a retry whose next attempt was quicker, or a burial whose letter was replayed.

KEYS.record                 task:<id>   HASH
KEYS.result                 <result>    STRING published as well, on a channel of this name
ARGV.attempt: int
ARGV.token                  of the claim; of a burial: buried_ms
ARGV.value: bytes           of the result
ARGV.final                  a result that begins with this text is kept as it is; "" for none
ARGV.expires_seconds: int   of the result; 0: never
ARGV.db?: int               of the result; "" when it is the ledger's
ARGV.own_db: int            the ledger's
ARGV.after                  "": the attempt runs; "retry": it has published itself again, and the next one has not
                            begun; "burial": the task is dead
Returns   {"stored"} | {"fenced", state} | {"gone"} | {"elsewhere"}
          "gone": there is no record, as the task ended, or the server lost it; "elsewhere": that database cannot be
          reached from here; nothing was changed by either
Full      a result that takes more room than a record is refused
Cost      O(size of the result)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim', 'since_ms')
if not found[1] then
  return {'gone'}
end
local attempt, is_current = found[2], found[1] == 'running' and parts_of(found[3]) == ARGV.token
if ARGV.after == 'retry' then
  is_current = found[1] == 'queued' or found[1] == 'waiting'
elseif ARGV.after == 'burial' then
  -- No attempt of a task began whose message nobody could read.
  attempt, is_current = attempt or '0', found[1] == 'dead' and found[4] == ARGV.token
end
if not is_current or attempt ~= ARGV.attempt then
  return {'fenced', found[1]}
end
if not store_result() then
  return {'elsewhere'}
end
return {'stored'}
