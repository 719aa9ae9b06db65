"""Native threads: to stop, to wait for, not to be held up by greenlets, and to fork beside."""

from __future__ import annotations

import os
import resource
import socket

import pytest

from celery_reliable.native_threads import wait_readable
from tests.support.processes import run_python

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
    run_python("-c", BESIDE_A_BUSY_GREENLET)


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
