--[[
bequeath: an attempt is about to publish a canvas whose last member has the attempt's own id.

From now on that member may publish the id while the attempt still runs, because a short canvas can reach its last
member before the attempt has ended.

KEYS.record         task:<id>   HASH
ARGV.attempt: int
ARGV.token          of the claim
ARGV.heir           names this replacement; the canvas's members carry it
Returns   {"bequeathed", is_used: flag} | {"fenced", state} | {"gone"}
          with "1" where a task that had the id before may have left a result
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim', 'used')
local refused = refusal(unpack(found, 1, 3))
if refused then return refused end
redis.call('HSET', KEYS.record, 'heir', ARGV.heir)
return {'bequeathed', found[4] or ''}
