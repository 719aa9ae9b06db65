--[[
take: file the message that was popped, if there is one; pop and file more; remove what is acknowledged. One step.

KEYS.unacked        HASH tag: "<ms> <queue>\n<message as it was in its queue>"
KEYS.listed         SET names of the unacked hashes in which something may be
KEYS.lists...       LIST the first to be popped first; those of one priority side by side, one a queue
ARGV.least          how many to pop
ARGV.most           how many to pop where plenty remain
ARGV.plenty         how many must remain for that
ARGV.prefix         what the tags begin with; then comes 0 for the message that is given, 1, 2, ... for the others
ARGV.time           in ms, by the worker's clock
ARGV.queues         how many
ARGV.turns          how many lists side by side take turns; 1: each is emptied before the next
ARGV.acknowledged   how many
ARGV.name           of the unacked hash, on the list of them; "" for none
ARGV.names...       of the queues; tags that are acknowledged; then, if something was popped already, the name of its
                    queue and the message
Returns    {waiting, queue, message, ...}   waiting: how many are left in the lists
Cost       O(most + acknowledged + lists)
]]
local unacked, prefix, filed, queues = KEYS.unacked, ARGV.prefix, ARGV.time .. ' ', tonumber(ARGV.queues)
local turns, given = tonumber(ARGV.turns), FIRST.names + queues + ARGV.acknowledged
-- This write comes first because a full Redis refuses HSET and SADD in a script that has not written before.
redis.call('HDEL', unacked, '', unpack(ARGV, FIRST.names + queues, given - 1))
if ARGV.name ~= '' then
  -- A worker that was forgotten is off the list, and may not know it.  This call may also come late.
  redis.call('SADD', KEYS.listed, ARGV.name)
end
if ARGV[given] then
  redis.call('HSET', unacked, prefix .. '0', filed .. ARGV[given] .. '\n' .. ARGV[given + 1])
end
local waiting, lengths = 0, {}
for n = FIRST.lists, #KEYS do
  lengths[n] = redis.call('LLEN', KEYS[n])
  waiting = waiting + lengths[n]
end
local limit, taken, reply = tonumber(ARGV.least), 0, {waiting}
if waiting - ARGV.most >= tonumber(ARGV.plenty) then
  limit = tonumber(ARGV.most)
end
if redis.call('HEXISTS', unacked, prefix .. '1') == 1 then
  -- A repeated call, as the reply was lost: what the first one took is in the unacked hash, and not held.
  limit = 0
end
for first = FIRST.lists, #KEYS, turns do
  local is_empty = false
  while taken < limit and not is_empty do
    is_empty = true
    for n = first, first + turns - 1 do
      if taken < limit and lengths[n] > 0 then
        local item, queue = redis.call('RPOP', KEYS[n]), ARGV[FIRST.names + (n - FIRST.lists) % queues]
        is_empty, taken, lengths[n] = false, taken + 1, lengths[n] - 1
        redis.call('HSET', unacked, prefix .. taken, filed .. queue .. '\n' .. item)
        reply[#reply + 1] = queue
        reply[#reply + 1] = item
      end
    end
  end
end
reply[1] = waiting - taken
return reply
