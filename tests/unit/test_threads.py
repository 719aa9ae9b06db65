"""Native threads: to stop, to wait for, not to be held up by greenlets, and to fork beside."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys

import pytest

from celery_reliable import native_threads
from celery_reliable.native_threads import (
    NativeThread,
    fork_gate,
    wait_readable,
)
from tests.support.forking import Working, exit_code_of_a_child, has_no_holder

WAIT_SECONDS = 10.0

# In a process of its own: what is patched stays patched.
BESIDE_A_BUSY_GREENLET = """
import gevent.monkey
gevent.monkey.patch_all()
import time
from celery_reliable.native_threads import NativeThread, is_patched, socket_owner, wait_readable

class Counting(NativeThread):
    turns, owner = 0, None
    def run(self):
        self.owner = socket_owner()
        while not self.stop_asked(0.01):
            self.turns += 1

assert is_patched()
thread = Counting("counting")
thread.start()
until = time.monotonic() + 10
while thread.turns < 3 and time.monotonic() < until:
    sum(range(1000))
assert thread.turns >= 3
assert thread.owner != socket_owner()
thread.ask_to_stop()
assert thread.join(10)
"""


def test_a_greenlet_that_computes_does_not_hold_up_a_native_thread():
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_A_BUSY_GREENLET],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_socket_with_a_high_number_is_waited_for():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        near, far = socket.socketpair()
        with near, far:
            assert near.fileno() >= 1024
            assert wait_readable([near], 0.01) == []
            far.send(b"x")
            assert wait_readable([near, far], 5) == [near]
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


#: Of Python 3.12 and later: it is what these tests are about.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@FORKS
def test_a_fork_waits_for_a_thread_to_leave(working):
    def once(thread: Working) -> None:
        with thread.lock:
            thread.has_begun.set()
            thread.stop_asked(0.3)

    thread = working(once)
    assert exit_code_of_a_child(lambda: has_no_holder(thread.lock)) == 0


@FORKS
def test_a_fork_does_not_wait_for_ever(working, monkeypatch):
    monkeypatch.setattr(native_threads, "_LONGEST_WAIT_FOR_FORK_SECONDS", 0.05)

    def long(thread: Working) -> None:
        thread.has_begun.set()
        thread.stop_asked(WAIT_SECONDS)

    thread = working(long)
    # The child has a gate of its own, which nobody has shut.
    assert exit_code_of_a_child(lambda: fork_gate.__enter__() is None) == 0
    assert not thread.join(0.0)


@FORKS
def test_a_thread_inside_the_gate_can_fork(working):
    codes: list[int] = []

    def fork(thread: Working) -> None:
        codes.append(exit_code_of_a_child(lambda: fork_gate.__enter__() is None))
        with thread.lock:
            thread.has_begun.set()
            thread.stop_asked(0.3)

    thread = working(fork)
    assert codes == [0]
    # It had nobody to wait for, and others wait for it as before.
    assert exit_code_of_a_child(lambda: has_no_holder(thread.lock)) == 0


@FORKS
def test_only_who_is_inside_the_gate_opens_it(working):
    def hold(thread: Working) -> None:
        with thread.lock:
            thread.has_begun.set()
            thread.stop_asked(0.3)

    class Passing(NativeThread):
        def run(self) -> None:
            while not self.stop_asked(0.001):
                fork_gate.let_fork()

    thread, other = working(hold), Passing("passing")
    other.start()
    assert exit_code_of_a_child(lambda: has_no_holder(thread.lock)) == 0
    other.ask_to_stop()
    assert other.join(WAIT_SECONDS)
