"""A trace of all calls of scripts, for tests; off unless a process starts it.

Each script that a recording process sends also notes its own call in a stream of the namespace,
``trace``: name, keys, arguments, reply, writes, the time by which it decided, and the server's run
id.  The script does so in the same step.  So the stream has all calls of all processes in the order
in which they happened, and a server that loses its latest writes loses what the stream has of them.

The recorder puts other texts in the place of the scripts' own, so a process that does not record
pays nothing.  Long texts, such as messages, are noted by their digest.  The stream grows up to
`MOST` calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from celery_reliable.ledger import scripts

__all__ = ["MOST", "is_recording", "record_if_asked", "recorded", "start", "stop"]

#: A process that finds it in its environment is asked to record.
_VARIABLE = "CELERY_RELIABLE_TRACE"
#: So many calls are kept in a namespace, or a few more.
MOST = 1_000_000

_plain = scripts.source

_RECORDED = """\
local server = redis
local now, writes = server.call('TIME'), {{}}
local reads = {{
  GET = 1, HGET = 1, HMGET = 1, HGETALL = 1, HLEN = 1, ZSCORE = 1, ZRANGE = 1, TTL = 1, PTTL = 1,
  ZRANGEBYSCORE = 1, ZLEXCOUNT = 1, EXISTS = 1, INFO = 1, XREVRANGE = 1, SELECT = 1, PUBLISH = 1}}
local function brief(value)
  if type(value) == 'table' then
    local found = {{}}
    for i = 1, #value do found[i] = brief(value[i]) end
    return found
  end
  value = type(value) == 'number' and string.format('%.17g', value) or tostring(value)
  return #value > 250 and 'sha1:' .. server.sha1hex(value) or value
end
local function asked(how)
  return function(name, ...)
    -- So that the time by which it decides is the very one that is noted.
    if name == 'TIME' then return now end
    local reply = how(name, ...)
    if not reads[name] and not (type(reply) == 'table' and reply['err']) then
      writes[#writes + 1] = brief({{name, ...}})
    end
    return reply
  end
end
local redis = setmetatable(
  {{call = asked(server.call), pcall = asked(server.pcall)}}, {{__index = server}})
local function body(KEYS, ARGV)
{text}
end
local is_done, reply, aside = pcall(body, KEYS, ARGV)
local why = not is_done and (type(reply) == 'table' and reply['err'] or tostring(reply))
local prefix = string.match(KEYS[1], '^.-}}:')
if prefix then
  local info = server.pcall('INFO', 'server')
  local said = is_done and brief(reply) or {{'error', why}}
  server.pcall('XADD', prefix .. 'trace', 'MAXLEN', '~', '{most}', '*', 'script', '{name}',
    'call', cjson.encode({{KEYS, brief(ARGV), said, writes}}),
    'at_us', now[1] .. string.format('%06d', now[2]),
    'run_id', type(info) == 'string' and string.match(info, 'run_id:(%w+)') or '')
end
if not is_done then
  if type(reply) == 'table' then return reply end
  error(reply, 0)
end
return reply, aside
"""


def recorded(name: str, text: str) -> str:
    """Return the script *name* as one that also notes its call."""
    return _RECORDED.format(name=name, text=text, most=MOST)


def is_recording() -> bool:
    """Tell whether this process records its calls."""
    return scripts.source is not _plain


def start(as_sent: Callable[[str, str], str] = recorded) -> None:
    """Record the calls of this process.  Processes that it starts are asked to do so, too.

    *as_sent*: what this process sends of a script, by its name and text.
    """
    os.environ[_VARIABLE] = "yes"
    scripts.source = lambda name: as_sent(name, _plain(name))
    scripts.script.cache_clear()


def stop() -> None:
    """Record no more."""
    os.environ.pop(_VARIABLE, None)
    scripts.source = _plain
    scripts.script.cache_clear()


def record_if_asked() -> None:
    """Record, if the process that started this one does."""
    if _VARIABLE in os.environ and not is_recording():
        start()
