--[[
send: put a message that is recorded into its list. A full server takes it, too: its record is there in any case, and
goes as soon as it has run.

KEYS.list      LIST
ARGV.command   "RPUSH": before what waits there; "LPUSH": behind it
ARGV.message
Returns   how many are in the list
Cost      O(1)
]]
-- A full Redis runs the rest of a script that was about to remove something. That this fails, as nothing is removed from a
-- list so, is no matter.
redis.pcall('HDEL', KEYS.list, '')
return redis.call(ARGV.command, KEYS.list, ARGV.message)
