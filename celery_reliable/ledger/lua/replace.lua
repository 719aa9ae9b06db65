--[[
replace: an attempt has given its id to a canvas, whose last member will be published under it.

The record gets another epoch, so that a late copy of the attempt's own message can neither run nor call off what
waits.

Moves     running(attempt) -> waiting
KEYS[1]   record   HASH
KEYS[2]   due      ZSET
KEYS[3]   claims   HASH   of the worker that runs the attempt
ARGV[1]   id
ARGV[2]   attempt
ARGV[3]   due_in_ms   when to look whether the canvas ended without publishing the id
ARGV[4]   token       of the claim
ARGV[5]   stored      the result that is there of a task that had the id before; "" not known
ARGV[6]   members     ids of the canvas's other members, JSON: it lives as long as one of them
Returns   {"waiting"} | {"fenced", state} | {"gone"}
Cost      O(log N) in records that are due some time
]]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'ended', 'token')
if found[1] == 'waiting' and found[3] == ARGV[2] then
  return {'waiting'}
end
if found[1] ~= 'running' or found[2] ~= ARGV[2] or found[4] ~= ARGV[4] then
  -- The canvas was quicker: the id was published, and is somebody else's.
  local claim = redis.call('HGET', KEYS[3], ARGV[1])
  if claim and string.match(claim, '^(%d+) ') == ARGV[2] and string.match(claim, ' (%S+)$') == ARGV[4] then
    redis.call('HDEL', KEYS[3], ARGV[1])
  end
  if not found[1] then
    return {'gone'}
  end
  return {'fenced', found[1]}
end
-- The removal comes first, as in claim.
redis.call('HDEL', KEYS[1], 'owner', 'token', 'pid', 'claimed_ms', 'suspect', 'spared', 'openings', 'waits', 'alone')
redis.call('HSET', KEYS[1], 'state', 'waiting', 'ended', ARGV[2], 'epoch', ARGV[2] .. '-replaced',
  'waiting_ms', now_ms, 'members', ARGV[6])
redis.call('HDEL', KEYS[3], ARGV[1])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'stored', ARGV[5])
end
redis.call('ZADD', KEYS[2], now_ms + ARGV[3], ARGV[1])
return {'waiting'}
