--[[
take_next: remove the message that is done with; pop the next one, file it, and claim its task if nothing speaks against
that. One step, for a process that takes its own messages. `claim` is the ledger's script, as a function.

The key of a record is made of what is popped. So this is for a queue in the ledger's own database, on a server that is no
cluster.

KEYS.unacked     HASH tag: "<ms> <queue>\n<message as it was in its queue>"
KEYS.listed      SET names of the unacked hashes in which something may be
KEYS.ledger      what all keys of the ledger begin with
KEYS.due         ZSET this and the next three as in claim
KEYS.meta        HASH
KEYS.worker      HASH
KEYS.claims      HASH
KEYS.lists...    LIST the first to be popped first; those of one priority side by side, one a queue
ARGV.tag         of the message that is popped, and token of its claim
ARGV.done        tag of a message that is done with; "" for none
ARGV.time        in ms, by the worker's clock
ARGV.name        of the unacked hash, on the list of them
ARGV.worker      id
ARGV.pid         of this process
ARGV.alone_ms    as in claim
ARGV.cold        names of tasks that are not claimed here, each between line breaks
ARGV.longest     message that is looked into, in bytes
ARGV.queues...   their names
Returns    one text, as the server writes each part of a nested reply by itself, and wakes who waits for it with the first
           empty | no_lease   nothing was taken; the second: the worker has been declared dead
           ["cold", queue] LF message   the worker has to look at this one, which may be anything
           ["asked", queue, answer...] LF message   the answer of claim
Cost       O(lists + size of the headers)
]]
local unacked, tag = KEYS.unacked, ARGV.tag
-- This write comes first because a full Redis refuses HSET and SADD in a script that has not written before.
redis.call('HDEL', unacked, '', ARGV.done)
if redis.call('HGET', KEYS.worker, 'state') ~= 'alive' then
  return 'no_lease'
end
local item, queue
local filed = redis.call('HGET', unacked, tag)
if filed then
  -- A repeated call, as the reply was lost.
  local at = string.find(filed, '\n', 1, true)
  queue, item = string.match(string.sub(filed, 1, at - 1), ' (.*)$'), string.sub(filed, at + 1)
else
  for n = FIRST.lists, #KEYS do
    item = redis.call('RPOP', KEYS[n])
    if item then
      queue = ARGV[FIRST.queues + (n - FIRST.lists) % (#ARGV - FIRST.queues + 1)]
      break
    end
  end
  if not item then
    return 'empty'
  end
  -- A worker that was forgotten is off the list, and may not know it.
  redis.call('SADD', KEYS.listed, ARGV.name)
  redis.call('HSET', unacked, tag, ARGV.time .. ' ' .. queue .. '\n' .. item)
end
local function told(...)
  return cjson.encode({...}) .. '\n' .. item
end
if #item > tonumber(ARGV.longest) or string.find(item, '"reliable_returns"', 1, true) then
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
    if at and (at - slash) % 2 == 0 then
      return string.sub(item, at, at + #key - 1) == key and at + #key or nil
    end
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
  local function is_given(value)
    return value ~= nil and value ~= cjson.null
  end
  if type(headers.id) ~= 'string' or type(headers.task) ~= 'string' or type(headers.reliable) ~= 'string'
      or headers.id == '' or is_given(headers.eta) or is_given(headers.expires) or is_given(headers.reliable_workers)
      or is_given(headers.reliable_call) or is_given(headers.compression)
      or (is_given(headers.stamped_headers)
        and (type(headers.stamped_headers) ~= 'table' or next(headers.stamped_headers) ~= nil)) then
    return told('cold', queue)
  end
  for _, limit in pairs(type(headers.timelimit) == 'table' and headers.timelimit or {}) do
    if is_given(limit) then return told('cold', queue) end
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
