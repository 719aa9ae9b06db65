--[[
ended: tell whether the task of a message has ended, for somebody who would move the message and not run it.

KEYS[1]   record   HASH
KEYS[2]   meta     HASH
KEYS[3]   sent     STRING   what the message's sender has published last
ARGV[1]   generation   of the message
ARGV[2]   number       of the message among its sender's; "" when that cannot be told
Returns   {"ended"} | {"exists", state} | {"unrecorded"}
          "unrecorded": the server may have lost the record, or it is not known any more whether it had it
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'called_off')
if found[1] and not found[2] then
  return {'exists', found[1]}
end
if ARGV[2] ~= '' then
  local last = string.match(redis.call('GET', KEYS[3]) or '', '^%S*%-(%d+)')
  if last and tonumber(last) >= tonumber(ARGV[2]) then
    -- A server loses its latest writes only: it had the record, whichever server it was.
    return {'ended'}
  end
end
local info = redis.pcall('INFO', 'server')
local run_id = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local meta = redis.call('HMGET', KEYS[2], 'generation', 'run_id')
if run_id ~= '' and run_id == meta[2] and meta[1] == ARGV[1] then
  return {'ended'}
end
return {'unrecorded'}
