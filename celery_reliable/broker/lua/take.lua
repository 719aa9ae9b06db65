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
Cost       O(lists + size of the headers + messages that are done with)
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
-- Within a JSON text quotes are escaped, so these are the keys themselves. What else looks like them cannot be decoded.
local from = string.find(item, '"headers": {', 1, true)
-- Headers just as Celery and this package write them, one after the other: of a task without time limits, stamps, an ETA,
-- or anything that somebody has added. To decode them takes five times as long.
local task, id, at = string.match(from and item or '', '^{"lang": "py", "task": "([^"\\]+)", "id": "([^"\\]+)", "shadow": null, '
  .. '"eta": null, "expires": null, "group": "?[^"\\,{%[]*"?, "group_index": %w+, "retries": %d+, '
  .. '"timelimit": %[null, null%], "root_id": "[^"\\]*", "parent_id": "?[^"\\,{%[]*"?, "argsrepr": "()', (from or 0) + 11)
local function behind(key, from)
  -- Where a string goes on to which *key* leads, if the one whose text begins at *from* ends just before that.
  local at = from and from - 1
  while at do
    at = string.find(item, '"', at + 1, true)
    local slash = at
    while slash and slash > from and string.byte(item, slash - 1) == 92 do slash = slash - 1 end
    if at and (at - slash) % 2 == 0 then return string.sub(item, at, at + #key - 1) == key and at + #key or nil end
  end
end
local generation, epoch, digest
at = behind('", "origin": "', behind('", "kwargsrepr": "', at))
if at then
  generation, epoch, digest, at = string.match(item, '^[^"\\]*", "ignore_result": %l+, "replaced_task_nesting": %d+, '
    .. '"stamped_headers": null, "stamps": {}, "reliable": "(%d+):([^"\\]*):(%x+)"()', at)
end
if not at or string.sub(item, at, at + 17) ~= '}, "properties": {' then
  local to = from and string.find(item, '}, "properties": {', from, true)
  local is_read, headers = pcall(cjson.decode, to and string.sub(item, from + 11, to) or '')
  if not is_read or type(headers) ~= 'table' then
    return told('cold', queue)
  end
  if type(headers.id) ~= 'string' or type(headers.task) ~= 'string' or type(headers.reliable) ~= 'string'
      or headers.id == '' or (headers.eta or cjson.null) ~= cjson.null
      or (headers.reliable_workers or cjson.null) ~= cjson.null or (headers.reliable_call or cjson.null) ~= cjson.null then
    return told('cold', queue)
  end
  id, task = headers.id, headers.task
  generation, epoch, digest = string.match(headers.reliable, '^(%d+):(.*):(%x+)$')
end
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
