--[[
withdraw: take back a publication whose sending raised. Its object is freed.

Moves     queued | parked -> absent   (the very publication, never claimed, and no call was answered with it)
          held by this task -> free
KEYS.record   task:<id>       HASH
ARGV.id
ARGV.epoch
Returns   {"withdrawn"} | {"not_withdrawn", state} | {"gone"}
Repeated  gone -> withdrawn
Cost      O(log N) in records that are due some time
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'epoch', 'attempt', 'relied', 'object', 'waiting_for')
if not found[1] then
  return {'gone'}
end
if found[2] ~= ARGV.epoch or found[3] or found[4] or (found[1] ~= 'queued' and found[1] ~= 'parked') then
  return {'not_withdrawn', found[1]}
end
leave(ARGV.id, found[6])
call_off(nil, found[5])
return {'withdrawn'}
