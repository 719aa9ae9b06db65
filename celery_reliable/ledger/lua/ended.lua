--[[
ended: tell whether the task of a message has ended, for somebody who would move the message and not run it.

KEYS[1]   record   HASH
KEYS[2]   meta     HASH
ARGV[1]   generation   of the message
Returns   {"ended"} | {"exists", state} | {"unrecorded"}
          "unrecorded": the server may have lost the record
Cost      O(1)
]]
local state = redis.call('HGET', KEYS[1], 'state')
if state then
  return {'exists', state}
end
local info = redis.pcall('INFO', 'server')
local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local meta = redis.call('HMGET', KEYS[2], 'generation', 'run_id')
if run_id ~= '' and run_id == meta[2] and meta[1] == ARGV[1] then
  return {'ended'}
end
return {'unrecorded'}
