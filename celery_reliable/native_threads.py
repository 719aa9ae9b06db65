"""Threads of the operating system, also where gevent has replaced Python's.

A greenlet that computes without a pause holds up all others, so what keeps a worker's lease cannot
be one of them.  A native thread can use patched sockets, as long as nobody else uses the same ones:
gevent gives each native thread an event loop of its own, and a socket belongs to the loop of the
thread that connected it.

It can use none of gevent's locks.  When greenlets of two threads want one at the same moment, one
of them may wait for ever.  Celery and kombu have locks for nearly everything.  So what needs them
is a greenlet (`NativeThread.shares_locks`), and logging, which everybody needs, gets locks of ours
(`SharedLock`).

A process that forks has to agree with its threads on when: see `ForkGate`.
"""

from __future__ import annotations

import _thread  # noqa: F401  (`_original` finds it among the loaded modules)
import math
import os
import select
import socket
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

from celery_reliable.compat.logging import lock_by
from celery_reliable.log import logger

__all__ = [
    "ForkGate",
    "NativeThread",
    "SharedLock",
    "fork_gate",
    "is_patched",
    "native_lock",
    "socket_owner",
    "wait_readable",
]

#: A fork waits no longer for a thread, as the main loop stands still meanwhile.  A thread that
#: takes longer between two steps is waiting for a server.
_LONGEST_WAIT_FOR_FORK_SECONDS = 2.0


def is_patched() -> bool:
    """Whether what Python calls a thread is a greenlet in this process."""
    # Looked up and not imported: a library that is not loaded has replaced nothing.
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def socket_owner() -> int:
    """Return a number that is the same for all who may share sockets in this process."""
    return _ident() if is_patched() else 0


def _ident() -> int:
    return int(_original("get_ident")())


def native_lock() -> Any:
    """Return a lock that may be shared with native threads; waiting for it stops all greenlets."""
    return _original("allocate_lock")()


def wait_readable(sockets: list[socket.socket], seconds: float) -> list[socket.socket]:
    """Wait until something can be read from one of *sockets*, or it is closed; return which.

    For native threads.  Raises OSError or ValueError for a socket that this side has closed.
    """
    # Not select(): it refuses descriptors from 1024 on, as a worker with many children has.
    poll = _original("poll", "select")()
    by_number = {sock.fileno(): sock for sock in sockets}
    for number in by_number:
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(math.ceil(seconds * 1000))]


class ForkGate:
    """Keeps a fork from falling between a thread's taking of a lock and its giving it back.

    The child has none of the other threads, and what they held at the fork is held in it for ever:
    it would hang where it first needs such a lock, with its task, as long as it lives.  Celery and
    kombu have some for each class (a result backend's client, the properties of an app), redis-py
    for each pool, and a user's receivers and backends may have any.

    A thread works inside ``with gate:`` and calls `let_fork` where it holds nothing.  A fork waits
    for that at most 2 seconds.  A thread that takes longer is waiting for a server, and is not
    known to hold such a lock then; later forks do not wait for the same step again.  Only one
    thread at a time is inside.
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(
            before=self._shut, after_in_parent=self._open, after_in_child=self._renew
        )

    def _renew(self) -> None:
        #: Held by the thread that works, and by a thread that forks.
        self._passing = native_lock()
        #: Held by a thread that forks.  Without it a thread that leaves the gate and enters it
        #: again at once would always come first.
        self._forking = native_lock()
        self._is_wanted = False
        self._is_shut = False
        #: A fork has waited in vain for the step that the thread inside is still at.
        self._is_waited_out = False
        self._inside = 0

    def __enter__(self) -> None:
        # A fork that waits goes first.
        self._forking.acquire()
        self._forking.release()
        self._passing.acquire()
        self._is_waited_out = False
        self._inside = _ident()

    def __exit__(self, *exc_info: object) -> None:
        self._inside = 0
        self._passing.release()

    def let_fork(self) -> None:
        """Let the process fork now, if it wants to and this thread is inside the gate."""
        if (self._is_wanted or self._is_waited_out) and self._inside == _ident():
            self.__exit__()
            self.__enter__()

    def _shut(self) -> None:
        self._forking.acquire()
        self._is_wanted = True
        # A thread that forks itself has nobody to wait for.
        if self._inside != _ident():
            seconds = 0.0 if self._is_waited_out else _LONGEST_WAIT_FOR_FORK_SECONDS
            self._is_shut = self._passing.acquire(True, seconds)
            self._is_waited_out = not self._is_shut
            if self._is_waited_out and seconds:
                logger.info("forked_beside_pass waited_seconds=%s", seconds)

    def _open(self) -> None:
        self._is_wanted = False
        if self._is_shut:
            self._is_shut = False
            self._passing.release()
        self._forking.release()


class NativeThread:
    """A daemon thread.  Subclasses say in `run` what it does, and end that when `stop_asked`."""

    #: Whether it takes locks that tasks take, too: Celery's, kombu's, those of receivers.  Then it
    #: is a greenlet among greenlets.
    shares_locks = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_apart = is_patched() and not self.shares_locks
        self._is_to_stop = False
        # Held until the thread is woken, and from its start until it has ended.  A native lock is
        # the one thing that a native thread and greenlets can both wait for.
        new_lock = native_lock if self._is_apart else threading.Lock
        self._wake, self._end = new_lock(), new_lock()
        self._wake.acquire()

    def run(self) -> None:
        """Do the thread's work."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the thread.  Once."""
        self._end.acquire()
        if self._is_apart:
            _share_locks_of_logging()
            _original("start_new_thread")(self._bootstrap, ())
        else:
            threading.Thread(target=self._bootstrap, name=self.name, daemon=True).start()

    def ask_to_stop(self) -> None:
        """Let every `stop_asked` be true from now on."""
        self._is_to_stop = True
        self.wake()

    def wake(self) -> None:
        """Let the `stop_asked` that waits, or the next one, not wait."""
        # Somebody else may have.
        with suppress(RuntimeError):
            self._wake.release()

    def stop_asked(self, wait_seconds: float = 0.0) -> bool:
        """Wait so long to be asked to stop, or to be woken; return whether it was asked to stop.
        Only for the thread itself.
        """
        if not self._is_to_stop:
            self._wake.acquire(True, wait_seconds)
        return self._is_to_stop

    def join(self, timeout_seconds: float) -> bool:
        """Wait until the thread has ended, if it was started; False when it has not in time."""
        if not self._end.acquire(True, timeout_seconds):
            return False
        self._end.release()
        return True

    def _bootstrap(self) -> None:
        try:
            self.run()
        finally:
            self._end.release()


class SharedLock:
    """A reentrant lock for the greenlets of several native threads.

    Greenlets of one thread wait for each other as ever.  A greenlet that waits for another thread
    holds up all greenlets of its own.
    """

    def __init__(self) -> None:
        self._at_fork_reinit()

    def _at_fork_reinit(self) -> None:
        # Logging calls this of its locks in a forked child.
        self._between = native_lock()
        #: The locks that greenlets of one thread take before the one between threads.
        self._within: dict[int, Any] = {}
        #: The thread that has the lock, and how often its greenlet has taken it.
        self._owner = self._depth = 0

    def acquire(self) -> bool:
        """Take the lock; waits until it is free."""
        ident = _ident()
        self._within.setdefault(ident, threading.RLock()).acquire()
        # If its own thread has it, it is this greenlet.
        if self._owner != ident:
            self._between.acquire()
            self._owner = ident
        self._depth += 1
        return True

    def release(self) -> None:
        """Give it back, as often as it was taken."""
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._between.release()
        self._within[_ident()].release()

    __enter__ = acquire

    def __exit__(self, *exc_info: object) -> None:
        self.release()


@cache
def _share_locks_of_logging() -> None:
    """Let native threads write to the log, or connect to a server, which logs too.  Once."""
    lock_by(SharedLock)


def _original(name: str, module: str = "_thread") -> Any:
    """Return a function of a module as it was before it was replaced."""
    if is_patched():
        return sys.modules["gevent.monkey"].get_original(module, name)
    return getattr(sys.modules[module], name)


#: The gate of this process, for all its threads.
fork_gate = ForkGate()
