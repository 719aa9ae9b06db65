--[[
requeue: move messages that nobody has begun out of an unacked hash, back to the front of their queues and as they were
there. One step, so that nobody who waits gets a later one first.

KEYS.unacked    HASH tag: "<ms> <queue>\n<message as it was in its queue>"
KEYS.lists...   LIST the one of each message, by its queue and its priority
ARGV.tags...    of the messages, the newest first
Returns    {1, 0, ...}   for each of them; 0 when it was not there any more
Cost       O(messages)
]]
local moved = {}
for n, tag in ipairs(ARGV) do
  local filed = redis.call('HGET', KEYS.unacked, tag)
  moved[n] = redis.call('HDEL', KEYS.unacked, tag)
  if filed then
    redis.call('RPUSH', KEYS[n + 1], string.sub(filed, string.find(filed, '\n', 1, true) + 1))
  end
end
return moved
