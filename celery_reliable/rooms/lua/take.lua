--[[
take: file what was popped, if anything was, and pop and file more in the same step.

KEYS[1]    room    HASH   tag: "<ms> <queue>\n<message as it was in its queue>"
KEYS[2..]  lists   LIST   the first to be popped first; those of one priority side by side, one a queue
ARGV[1]    limit   how many to pop
ARGV[2]    prefix  what the tags begin with; 0 ends that of what was given, 1 and so on those of the others
ARGV[3]    time    in ms, by the worker's clock
ARGV[4]    queues  how many
ARGV[5..]  names   of the queues; then, if something was popped already, the name of its queue and the message
Returns    {is_more, queue, message, ...}   is_more: 1 when something is left in the lists
Cost       O(limit + lists)
]]
local room, prefix, filed, queues = KEYS[1], ARGV[2], ARGV[3] .. ' ', tonumber(ARGV[4])
local given = 5 + queues
-- What is moved needs no memory, but a full Redis knows that only of scripts that have written.
redis.call('HDEL', room, '')
if ARGV[given] then
  redis.call('HSET', room, prefix .. '0', filed .. ARGV[given] .. '\n' .. ARGV[given + 1])
end
local limit, taken, reply = tonumber(ARGV[1]), 0, {0}
if redis.call('HEXISTS', room, prefix .. '1') == 1 then
  -- Asked again, as the reply was lost: what was taken then is in the room, and nobody holds it.
  limit = 0
end
-- Without a queue there is no list, and a step of 0 would never end.
for first = 2, #KEYS, math.max(queues, 1) do
  local is_empty = false
  while taken < limit and not is_empty do
    is_empty = true
    for n = 0, queues - 1 do
      local item = taken < limit and redis.call('RPOP', KEYS[first + n])
      if item then
        is_empty, taken = false, taken + 1
        redis.call('HSET', room, prefix .. taken, filed .. ARGV[5 + n] .. '\n' .. item)
        reply[#reply + 1] = ARGV[5 + n]
        reply[#reply + 1] = item
      end
    end
  end
end
-- Who took less than he could has seen the end of every list.
local n = taken < limit and #KEYS or 1
while reply[1] == 0 and n < #KEYS do
  n = n + 1
  reply[1] = redis.call('EXISTS', KEYS[n])
end
return reply
