--[[
take: remove the messages that are done with; pop the next one, file it, and claim its task if its message tells enough for
that. One step, for whoever is about to begin a task. `claim` is the ledger's script, as a function.

The key of a record is made of what is popped, so a claim is for a queue in the ledger's own database, on a server that is
no cluster.

KEYS.unacked     HASH tag: "<ms> <queue>\n<message as it was in its queue>"
KEYS.listed      SET names of the unacked hashes in which something may be
KEYS.ledger      what all keys of the ledger begin with
KEYS.due         ZSET this and the next three as in claim
KEYS.meta        HASH
KEYS.worker      HASH
KEYS.claims      HASH
KEYS.lists...    LIST the first to be popped first; one of each queue side by side
ARGV.tag         of the message that is popped, and token of its claim
ARGV.time        in ms, by the worker's clock
ARGV.name        of the unacked hash, on the list of them; "" for none
ARGV.worker      id; "" where the ledger is elsewhere: then nothing is claimed
ARGV.slot        names who takes in that worker, one message after the other: the number in which a tag ends only grows
ARGV.pid         of the process that runs it
ARGV.alone_ms    as in claim
ARGV.cold        names of tasks that are claimed as they begin, each between line breaks
ARGV.longest     message that is looked into, in bytes
ARGV.queues      how many
ARGV.names...    of the queues; then tags of messages that are done with
Returns    one text, as the server writes each part of a nested reply by itself, and wakes who waits for it with the first
           empty | no_lease   nothing was taken, as there is nothing, or as this call came late; the second: the worker has
                              been declared dead
           ["cold", queue] LF message   what its message tells is not enough to claim it; it may be anything
           ["asked", queue, answer...] LF message   the answer of claim
Cost       O(lists + size of the message + messages that are done with)
]]
local unacked, tag, queues = KEYS.unacked, ARGV.tag, tonumber(ARGV.queues)
-- This write comes first because a full Redis refuses HSET and SADD in a script that has not written before.
redis.call('HDEL', unacked, '', unpack(ARGV, FIRST.names + queues))
if tag == '' then return 'empty' end
local number, is_new = tonumber(string.match(tag, '%d+$')), false
if ARGV.worker ~= '' then
  local lease = redis.call('HMGET', KEYS.worker, 'state', 'took:' .. ARGV.slot)
  if lease[1] ~= 'alive' then return 'no_lease' end
  is_new = number > tonumber(lease[2] or 0)
  if is_new then redis.call('HSET', KEYS.worker, 'took:' .. ARGV.slot, number) end
end
local queue, item
if not is_new then
  -- Something is there for a repeated call, as the reply was lost.
  queue, item = string.match(redis.call('HGET', unacked, tag) or '', '^%d+ ([^\n]*)\n(.*)$')
  -- Nobody would hear of what a late copy takes.
  if not item and ARGV.worker ~= '' then return 'empty' end
end
if not item then
  for n = FIRST.lists, #KEYS do
    item = redis.call('RPOP', KEYS[n])
    if item then
      queue = ARGV[FIRST.names + (n - FIRST.lists) % queues]
      break
    end
  end
  if not item then return 'empty' end
  if ARGV.name ~= '' then
    -- A worker that was forgotten is off the list, and may not know it.  This call may also come late.
    redis.call('SADD', KEYS.listed, ARGV.name)
  end
  redis.call('HSET', unacked, tag, ARGV.time .. ' ' .. queue .. '\n' .. item)
end
local function told(...)
  return cjson.encode({...}) .. '\n' .. item
end
if ARGV.worker == '' or #item > tonumber(ARGV.longest) then
  return told('cold', queue)
end
-- Within a JSON text quotes are escaped, so this is the key itself. A stamp that comes first says that the message tells all
-- that a claim needs: its task has no ETA, names no worker, and its call has no options.
local _, before = string.find(item, '"headers": {"reliable": "', 1, true)
local generation, epoch, digest, task, id = string.match(before and item or '',
  '^(%d+):([^"\\]*):(%x+)", "lang": "py", "task": "([^"\\]+)", "id": "([^"\\]+)"', (before or 0) + 1)
-- A stamp that was copied onto another id says nothing.
if not generation or #generation > 20 or digest ~= string.sub(redis.sha1hex(id), 1, 8)
    or string.find(ARGV.cold, '\n' .. task .. '\n', 1, true) then
  return told('cold', queue)
end
local answer = claim({KEYS.ledger, KEYS.ledger .. 'task:' .. id, KEYS.due, KEYS.meta, KEYS.worker, KEYS.claims},
  {id, epoch, generation, ARGV.worker, tag, ARGV.pid, '0', task, '', '', ARGV.alone_ms})
for i = 1, #answer do
  -- How numbers are encoded, and how deep, is a setting that all scripts of a server share.
  answer[i] = tostring(answer[i])
end
return told('asked', queue, unpack(answer))
