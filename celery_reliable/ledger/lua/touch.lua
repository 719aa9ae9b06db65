--[[
touch: the attempt that runs notes something: its time to run starts anew, it concludes, or a canvas takes its place.

An attempt that concludes is about to store its outcome. Its object is freed some steps later. A caller may see the
outcome before that and call the task again, and must not be answered with the task that is over.

A canvas has an heir: a last member with the attempt's own id. That member may publish the id from now on, while the
attempt still runs, because a short canvas can reach its last member before the attempt has ended.

KEYS.record                 task:<id>   HASH
KEYS.due                    due         ZSET
ARGV.id
ARGV.attempt: int
ARGV.token                  of the claim
ARGV.time_to_run_ms?: int   from now on
ARGV.is_concluding: flag
ARGV.heir?                  names the canvas that is about to be published; the canvas's members carry it
Returns   {"touched", is_used: flag} | {"fenced", state} | {"gone"}
          with "1" where a task that had the id before may have left a result
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim', 'used')
local refused = refusal(unpack(found, 1, 3))
if refused then return refused end
if ARGV.time_to_run_ms ~= '' then
  redis.call('ZADD', KEYS.due, now_ms + ARGV.time_to_run_ms, ARGV.id)
end
if ARGV.is_concluding == '1' then
  redis.call('HSET', KEYS.record, 'claim', with_note(found[3], 'concluding', ''))
elseif ARGV.heir ~= '' then
  redis.call('HSET', KEYS.record, 'claim', with_note(found[3], 'heir', ARGV.heir))
end
return {'touched', found[4] and '1' or ''}
