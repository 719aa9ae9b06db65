--[[
ended: tell whether the task of a message has ended, for somebody who would move the message and not run it.

KEYS.record        task:<id>       HASH
KEYS.meta          meta            HASH
KEYS.sent          sent:<sender>   STRING what the message's sender has published last
ARGV.generation    of the message
ARGV.number?: int  of the message among its sender's; "" when that cannot be told
Returns   {"ended"} | {"exists", state} | {"unrecorded"}
          "unrecorded": the server may have lost the record, or it is not known any more whether it had it
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'waiting_for')
if found[1] and found[2] ~= 'stop' then
  return {'exists', found[1]}
end
if ARGV.number ~= '' then
  local last = string.match(redis.call('GET', KEYS.sent) or '', '^%S*%-(%d+)')
  if last and tonumber(last) >= tonumber(ARGV.number) then
    -- A server loses its latest writes only: it had the record, whichever server it was.
    return {'ended'}
  end
end
local run_id = run_id()
local meta = redis.call('HMGET', KEYS.meta, 'generation', 'run_id')
if run_id ~= '' and run_id == meta[2] and meta[1] == ARGV.generation then
  return {'ended'}
end
return {'unrecorded'}
