"""Native threads: to stop, to wait for, not to be held up by greenlets, and to fork beside."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time

import pytest

from celery_reliable import native_threads
from celery_reliable.native_threads import (
    NativeThread,
    fork_gate,
    is_patched,
    socket_owner,
    wait_readable,
)
from tests.support.forking import Working, exit_code_of_a_child, has_no_holder
from tests.support.waiting import wait_for

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

# Both sides log at once, over a handler that lets other greenlets have a turn in the middle.
LOGGING_BESIDE_GREENLETS = """
import gevent.monkey; gevent.monkey.patch_all()
import logging, threading, time
from celery_reliable.native_threads import NativeThread

class Slow(logging.Handler):
    inside = most = 0
    def emit(self, record):
        Slow.inside += 1
        Slow.most = max(Slow.most, Slow.inside)
        time.sleep(0.001)
        Slow.inside -= 1

def log(who):
    for number in range(60):
        logging.warning("%s %s", who, number)
        logging.getLogger(who + str(number)).isEnabledFor(logging.INFO)

class Logging(NativeThread):
    is_done = False
    def run(self):
        log("thread")
        self.is_done = True

logging.root.addHandler(Slow())
thread = Logging("logging")
thread.start()
logging.root.addHandler(Slow())
tasks = [threading.Thread(target=log, args=("task" + str(number),)) for number in range(3)]
for task in tasks:
    task.start()
# As in a worker there is always a timer: gevent takes a wait for another thread alone for one that
# would never end.
until = time.monotonic() + 10
while not (thread.is_done and not any(task.is_alive() for task in tasks)):
    assert time.monotonic() < until
    time.sleep(0.01)
# One at a time in each of the two.
assert Slow.most <= 2, Slow.most
"""


class Patient(NativeThread):
    """Does nothing until it is asked to stop."""

    def run(self) -> None:
        while not self.stop_asked(WAIT_SECONDS):
            continue


def test_a_thread_ends_when_it_is_asked_to():
    thread = Patient("patient")
    thread.start()
    assert not thread.join(0.0)
    thread.ask_to_stop()
    thread.ask_to_stop()
    assert thread.join(WAIT_SECONDS)
    assert thread.join(0.0)


class Counting(NativeThread):
    """Counts how often it has waited."""

    n_turns = 0

    def run(self) -> None:
        while not self.stop_asked(WAIT_SECONDS):
            self.n_turns += 1


def test_a_thread_that_is_woken_goes_on_and_waits_again():
    thread = Counting("counting")
    # Before it waits: then it does not wait.
    thread.wake()
    thread.wake()
    thread.start()
    wait_for(lambda: thread.n_turns == 1, WAIT_SECONDS / 2, "its first turn")
    thread.wake()
    wait_for(lambda: thread.n_turns == 2, WAIT_SECONDS / 2, "its second turn")
    assert not thread.join(0.0)

    thread.wake()
    thread.ask_to_stop()

    assert thread.join(WAIT_SECONDS / 2)
    assert thread.n_turns <= 3


def test_a_thread_that_never_started_has_ended():
    assert Patient("patient").join(0.0)


def test_all_threads_share_sockets_where_nothing_is_patched():
    assert not is_patched()
    assert socket_owner() == 0


def test_a_thread_has_to_say_what_it_does():
    with pytest.raises(NotImplementedError):
        NativeThread("idle").run()


def test_a_greenlet_that_computes_does_not_hold_up_a_native_thread():
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_A_BUSY_GREENLET],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_native_thread_logs_beside_greenlets():
    done = subprocess.run(
        [sys.executable, "-c", LOGGING_BESIDE_GREENLETS],
        capture_output=True,
        text=True,
        timeout=30,
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


def test_a_socket_that_was_closed_by_the_other_side_is_readable():
    near, far = socket.socketpair()
    with near:
        far.close()
        assert wait_readable([near], 5) == [near]


#: Of Python 3.12 and later: it is what these tests are about.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@FORKS
def test_a_fork_waits_for_the_next_moment_without_a_lock(working):
    def steps(thread: Working) -> None:
        while not thread.stop_asked():
            with thread.lock:
                thread.has_begun.set()
                thread.stop_asked(0.05)
            fork_gate.let_fork()

    thread = working(steps)
    codes = [exit_code_of_a_child(lambda: has_no_holder(thread.lock)) for _ in range(5)]
    assert codes == [0] * 5
    assert not thread.join(0.0)


@FORKS
def test_a_fork_goes_before_the_next_step(working):
    n_steps = 0

    def steps(thread: Working) -> None:
        nonlocal n_steps
        thread.has_begun.set()
        while not thread.stop_asked(0.001):
            # The fork has begun to wait: what comes next is who goes first.
            if fork_gate._is_wanted:
                fork_gate.let_fork()
                n_steps += 1

    working(steps)
    codes = [exit_code_of_a_child(lambda n=n: n_steps <= n) for n in range(10)]
    assert codes == [0] * 10


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
def test_forks_wait_once_for_what_takes_long(working, monkeypatch):
    monkeypatch.setattr(native_threads, "_LONGEST_WAIT_FOR_FORK_SECONDS", 0.3)
    may_go_on, has_gone_on = threading.Event(), threading.Event()

    def long(thread: Working) -> None:
        thread.has_begun.set()
        may_go_on.wait(WAIT_SECONDS)
        fork_gate.let_fork()
        while not thread.stop_asked():
            with thread.lock:
                has_gone_on.set()
                thread.stop_asked(0.05)
            fork_gate.let_fork()

    thread = working(long)
    began = time.monotonic()
    for _ in range(20):
        exit_code_of_a_child(lambda: True)
    assert time.monotonic() - began < 20 * 0.3
    # What was too long is over, so the next ones are waited for.
    may_go_on.set()
    assert has_gone_on.wait(WAIT_SECONDS)
    codes = [exit_code_of_a_child(lambda: has_no_holder(thread.lock)) for _ in range(5)]
    assert codes == [0] * 5


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

    class Passing(Patient):
        def run(self) -> None:
            while not self.stop_asked(0.001):
                fork_gate.let_fork()

    thread, other = working(hold), Passing("passing")
    other.start()
    assert exit_code_of_a_child(lambda: has_no_holder(thread.lock)) == 0
    other.ask_to_stop()
    assert other.join(WAIT_SECONDS)


@FORKS
def test_who_has_left_the_gate_does_not_open_it(working, monkeypatch):
    monkeypatch.setattr(native_threads, "_LONGEST_WAIT_FOR_FORK_SECONDS", 0.05)
    codes: list[int] = []

    class Forking(NativeThread):
        def run(self) -> None:
            codes.append(exit_code_of_a_child(lambda: True))

    forking = Forking("forking")
    with fork_gate:
        forking.start()
        assert forking.join(WAIT_SECONDS)
    # The fork has waited in vain, so that whoever is inside would make room for the next one.
    fork_gate.let_fork()

    assert codes == [0]
    with fork_gate:
        assert exit_code_of_a_child(lambda: fork_gate.__enter__() is None) == 0
