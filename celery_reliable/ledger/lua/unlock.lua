--[[
unlock: an attempt whose body is over frees its object, while its record goes on.

Moves     held by this attempt -> free
KEYS.record         task:<id>       HASH of the id: one that was published anew has the same numbers, and its own
                                    object
ARGV.id
ARGV.attempt: int
ARGV.token          of the claim
ARGV.object         which the record notes no longer
Returns   {"unlocked"} | {"not_held"}
Repeated  not_held -> unlocked
Cost      O(places); O(places * log N) in records that are due some time for each task that is let in
]]
if redis.call('GET', KEYS.ledger .. 'lock:' .. ARGV.object) ~= ARGV.attempt .. ':' .. ARGV.id then
  return {'not_held'}
end
local found = redis.call('HMGET', KEYS.record, 'state', 'claim', 'attempt', 'object')
if (found[1] == 'running' and parts_of(found[2]) ~= ARGV.token) or (found[1] and tonumber(found[3] or 0) < tonumber(ARGV.attempt)) then
  return {'not_held'}
end
if found[4] == ARGV.object then
  redis.call('HDEL', KEYS.record, 'object')
end
free(ARGV.id, ARGV.object)
return {'unlocked'}
