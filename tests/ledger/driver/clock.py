"""Time that the driver makes: of the server (in the scripts' text), of each host, and for sleeping.

The rest of a script stays as it is.  Expiries run on the server's real clock, so they are stretched
by STRETCH, and shortened by hand as time passes.  Of what is left only whole stretched milliseconds
count, so that what the driver itself takes (less than STRETCH ms) changes nothing.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import cache
from typing import Any

from celery_reliable.app import reliable_of
from tests.ledger.driver.schedule import Process, Schedule

STRETCH = 1_000_000
#: 2026-01-01, in ms.
BEGIN_MS = 1_767_225_600_000

SECONDS, MICROS, RUN_ID = "driver:s", "driver:us", "driver:run_id"

_EXPIRY = re.compile(r"('(?:PX|PEXPIRE)', (?:KEYS\[\d+\], |\w+, )?)([^()\s,]+)\)")
_LEFT = re.compile(r"(redis\.call\('PTTL', KEYS\[\w+\][^()]*\))")
#: Lets time pass on the server.
PASS = f"""
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left > 0 then
    left = math.ceil(left / {STRETCH}) - ARGV[1]
    redis.call('PEXPIRE', key, math.max(left, 0) * {STRETCH})
  end
end
redis.call('MSET', KEYS[1], ARGV[2], KEYS[2], ARGV[3])
"""
#: The package's own, and what it stands on.
_PACKAGES = ("celery_reliable", "celery", "kombu", "redis", "vine", "billiard")


def on_a_clock(text: str) -> str:
    """Return a script's text with the driver's clock and run id in the place of the server's."""
    text = text.replace("redis.call('TIME')", f"redis.call('MGET', '{SECONDS}', '{MICROS}')")
    told = f"redis.call('GET', '{RUN_ID}')"
    text = re.sub(r"redis\.p?call\('INFO', 'server'\)", told, text)
    stretched, n_found = _EXPIRY.subn(rf"\1(\2) * {STRETCH})", text)
    # A result expires by the real clock: a day later.
    assert n_found == len(re.findall(r"'P?EXPIRE(?:AT)?'|'PX(?:AT)?'", text)), text
    stretched, n_found = _LEFT.subn(rf"math.ceil(\1 / {STRETCH})", stretched)
    assert n_found == len(re.findall(r"'P?TTL'", text)), text
    return stretched


class ServerClock:
    """The server's clock and its run id, as the scripts read them."""

    def __init__(self, schedule: Schedule, stage: Any) -> None:
        self._schedule = schedule
        self._stage = stage
        #: How far it is ahead of the truth.
        self.ahead_ms = 0.0
        self._shown_ms = 0
        #: How often it was started, and by how much the clock went forward in all.
        self.n_runs = 0
        self.forward_ms = 0.0

    def begin(self) -> None:
        """Set it on an empty server."""
        self.restart()
        self._shown_ms = int(self.now_ms)
        self.show()

    @property
    def now_ms(self) -> float:
        return BEGIN_MS + self._schedule.now_ms + self.ahead_ms

    def show(self) -> None:
        """Let the server see what time it is."""
        now_ms = int(self.now_ms)
        passed_ms, self._shown_ms = now_ms - self._shown_ms, now_ms
        self.forward_ms += max(passed_ms, 0)
        seconds, ms = divmod(now_ms, 1000)
        keys, args = (SECONDS, MICROS), (passed_ms, seconds, ms * 1000)
        self._stage.ask("EVALSHA", self._stage.pass_time, 2, *keys, *args)

    def restart(self) -> None:
        """Be another server process from now on."""
        self.n_runs += 1
        for ask in self._stage.ask_in.values():
            ask("SET", RUN_ID, f"run_id:{self._run_id}")

    @property
    def _run_id(self) -> str:
        return f"{self.n_runs:040x}"

    def is_of_now(self, run_id: bytes | None) -> bool:
        """Whether a run id is that of this process, or none."""
        return not run_id or run_id.decode() == self._run_id


class HostTime:
    """What `time` is to the package: each process has its own wall clock."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def _process(self) -> Process | None:
        actor = self._schedule.current
        return actor.process if actor else None

    def monotonic(self) -> float:
        process = self._process()
        away = process.suspended_seconds if process else 0.0
        return 1000.0 + self._schedule.now_ms / 1000 - away

    def time(self) -> float:
        process = self._process()
        ahead = process.skew_seconds if process else 0.0
        return (BEGIN_MS + self._schedule.now_ms) / 1000 + ahead

    def clock_gettime(self, which: int) -> float:
        if which == time.CLOCK_REALTIME:
            return self.time()
        if which == getattr(time, "CLOCK_BOOTTIME", None):
            return 1000.0 + self._schedule.now_ms / 1000
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        self._schedule.sleep(seconds)


class HostOs:
    """What `os` is to the package: processes are the driver's."""

    def __init__(self, schedule: Schedule, processes: dict[int, Process]) -> None:
        self._schedule = schedule
        self._processes = processes

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getpid(self) -> int:
        actor = self._schedule.current
        return actor.process.pid if actor else os.getpid()

    def getppid(self) -> int:
        actor = self._schedule.current
        if actor is None or actor.process.parent is None or not actor.process.parent.is_alive:
            return 1
        return actor.process.parent.pid

    def kill(self, pid: int, number: int) -> None:
        process = self._processes.get(pid)
        if process is None or not process.is_alive:
            raise ProcessLookupError(pid)
        if number:
            self._schedule.kill(process)

    def waitid(self, kind: int, pid: int, options: int) -> Any:
        process = self._processes.get(pid)
        if process is None:
            raise ChildProcessError(pid)
        return None if process.is_alive else object()

    def register_at_fork(self, **_: Any) -> None:
        """Nobody forks."""


class _Moment(datetime):
    """`datetime` with the driver's now."""

    host_time: HostTime

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.fromtimestamp(cls.host_time.time(), tz)


def app_now(host_time: HostTime) -> datetime:
    return datetime.fromtimestamp(host_time.time(), timezone.utc)


@contextmanager
def installed(schedule: Schedule, processes: dict[int, Process]) -> Iterator[HostTime]:
    """Give the package, and what it stands on, the driver's time; and the package its processes."""
    host_time, host_os = HostTime(schedule), HostOs(schedule, processes)
    _Moment.host_time = host_time
    given = {
        "module": host_time, "os": host_os, "datetime": _Moment, "time": host_time.time,
        "monotonic": host_time.monotonic, "sleep": host_time.sleep,
    }  # fmt: skip
    changed = list(_places(len(sys.modules)))
    for module, name, _, what in changed:
        setattr(module, name, given[what])
    try:
        yield host_time
    finally:
        for module, name, real, _ in changed:
            setattr(module, name, real)


@cache
def _places(n_modules: int) -> list[tuple[Any, str, Any, str]]:
    """Return where a module has what tells the time, or a process; sought anew when more of them
    were imported.
    """
    real = {
        id(time): "module",
        id(time.time): "time",
        id(time.monotonic): "monotonic",
        id(time.sleep): "sleep",
    }
    ours = {id(os): "os", id(datetime): "datetime"}
    found = []
    for module_name, module in sorted(sys.modules.items()):
        if module_name.split(".")[0] not in _PACKAGES:
            continue
        wanted = real
        # There each process has connections of its own; these may be shared.
        if module_name.startswith("celery_reliable") and module_name != reliable_of.__module__:
            wanted = real | ours
        for name, value in vars(module).items():
            if id(value) in wanted:
                found.append((module, name, value, wanted[id(value)]))
    return found
