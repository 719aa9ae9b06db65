--[[
begin_run: note a run before its members are published.

KEYS.run              run:<id>   HASH
KEYS.runs             runs       ZSET
ARGV.id
ARGV.name             of the task
ARGV.only             patterns of the workers, as JSON
ARGV.due_in_ms: int   when to look whether it is over
ARGV.members...       ids of its members
Returns   {"begun_run"}
Full      refused: what is published for it would be
Cost      O(members)
]]
redis.call('HSET', KEYS.run, ':name', ARGV.name, ':only', ARGV.only, ':begun_ms', now_ms)
for i = FIRST.members, #ARGV do
  if not redis.call('HGET', KEYS.run, ARGV[i]) then redis.call('HSET', KEYS.run, ARGV[i], '') end
end
redis.call('ZADD', KEYS.runs, now_ms + ARGV.due_in_ms, ARGV.id)
return {'begun_run'}
