--[[
send: put a message that is recorded into its list. A full server takes it, too: its record is there in any case, and
goes as soon as it has run.

KEYS[1]   list   LIST
ARGV[1]   command   "RPUSH": before what waits there; "LPUSH": behind it
ARGV[2]   message
Returns   how many are in the list
Cost      O(1)
]]
-- A full Redis runs the rest of a script that was about to remove something. That this fails, as nothing is removed from a
-- list so, is no matter.
redis.pcall('HDEL', KEYS[1], '')
return redis.call(ARGV[1], KEYS[1], ARGV[2])
