--[[
outlive: the worker that had to stop an attempt is dead or forgotten, so the attempt is over.

The task goes on as after `acknowledge`.

Moves     held by this task -> free   (the task is dead)
KEYS[1]   record   HASH
KEYS[2]   worker   HASH   that was to stop it
KEYS[3]   lock     STRING   of the object; "none" for none
ARGV[1]   id
ARGV[2]   worker
ARGV[3]   object   whose lock is given; "" for none
Returns   {"outlived"} | {"held", worker} | {"changed"} | {"object", object}
          "held" by the worker, as long as it lives; "object": the record of what is dead notes another one than
          was given, and nothing was changed
Cost      O(1)
]]
local found = redis.call('HMGET', KEYS[1], 'state', 'stopping_on', 'object')
if found[2] ~= ARGV[2] then
  return {'changed'}
end
if redis.call('HGET', KEYS[2], 'state') == 'alive' then
  return {'held', found[2]}
end
local is_freed = found[1] == 'dead'
if is_freed and found[3] and found[3] ~= ARGV[3] then
  return {'object', found[3]}
end
redis.call('HDEL', KEYS[1], 'stopping', 'stopping_on')
if is_freed and ARGV[3] ~= '' then
  redis.call('HDEL', KEYS[1], 'object')
  if string.match(redis.call('GET', KEYS[3]) or '', '^%d+:(.*)$') == ARGV[1] then
    redis.call('DEL', KEYS[3])
  end
end
return {'outlived'}
