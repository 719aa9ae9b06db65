--[[
replace: an attempt has given its id to a canvas, whose last member will be published under it.

The record gets another epoch, so that a late copy of the attempt's own message can neither run nor call off what
waits.

Moves     running(attempt) -> waiting
KEYS.record           task:<id>         HASH
KEYS.due              due               ZSET
KEYS.claims           claims:<worker>   HASH of the worker that runs the attempt
ARGV.id
ARGV.attempt: int
ARGV.due_in_ms: int   when to look whether the canvas ended without publishing the id
ARGV.token            of the claim
ARGV.stored?          the result that is there of a task that had the id before; "" not known
ARGV.members          ids of the canvas's other members, JSON: it lives as long as one of them
Returns   {"waiting"} | {"fenced", state} | {"gone"}
Repeated  gone -> waiting
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'attempt', 'claim')
if found[1] == 'waiting' and found[2] == ARGV.attempt and is_spent(found[3]) then
  return {'waiting'}
end
local refused = refusal(unpack(found, 1, 3))
if refused then
  -- The canvas was quicker: the id was published, and is somebody else's.
  drop_claim()
  return refused
end
redis.call('HDEL', KEYS.claims, ARGV.id)
redis.call('HSET', KEYS.record, 'state', 'waiting', 'waiting_for', 'canvas', 'epoch', ARGV.attempt .. '-replaced',
  'since_ms', now_ms, 'members', ARGV.members)
if ARGV.stored ~= '' then
  redis.call('HSET', KEYS.record, 'used', ARGV.stored)
end
redis.call('ZADD', KEYS.due, now_ms + ARGV.due_in_ms, ARGV.id)
return {'waiting'}
