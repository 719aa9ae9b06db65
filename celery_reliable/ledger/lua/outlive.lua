--[[
outlive: the worker that had to stop an attempt is dead or forgotten, so the attempt is over.

The task goes on as after `acknowledge`.

Moves     held by this task -> free   (the task is dead)
KEYS.record   task:<id>         HASH
KEYS.worker   worker:<worker>   HASH that was to stop it
KEYS.lock     lock:<object>     STRING of the object
ARGV.id
ARGV.worker
ARGV.object?  whose lock is given; "" for none
Returns   {"outlived"} | {"held", owner} | {"changed"} | {"other_object", object_key}
          "held" by the worker, as long as it lives; "other_object": the record of what is dead notes another one than
          was given, and nothing was changed
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS.record, 'state', 'stopping_on', 'object')
if found[2] ~= ARGV.worker then
  return {'changed'}
end
if redis.call('HGET', KEYS.worker, 'state') == 'alive' then
  return {'held', found[2]}
end
local is_freed = found[1] == 'dead'
if is_freed and found[3] and found[3] ~= ARGV.object then
  return {'other_object', found[3]}
end
redis.call('HDEL', KEYS.record, 'stopping', 'stopping_on')
if is_freed and ARGV.object ~= '' then
  redis.call('HDEL', KEYS.record, 'object')
  if string.match(redis.call('GET', KEYS.lock) or '', '^%d+:(.*)$') == ARGV.id then
    redis.call('DEL', KEYS.lock)
  end
end
return {'outlived'}
