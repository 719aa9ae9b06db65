"""Celery processes that need not import Celery first: a server that has imported it forks them.

Imports take most of the second until a worker is ready, and the tests start more than a thousand.
What is forked goes on as a fresh interpreter's main program would, in a session of its own.  What a
process may settle while it imports is never shared: see `can_be_forked`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parents[2]

#: What every worker of the tests imports, by what imports the most.  None of it makes an app or a
#: connection.
MODULES = (
    "celery.__main__", "celery.app.events", "celery.app.log", "celery.beat", "celery.bin.celery",
    "celery.concurrency.solo", "celery.concurrency.thread", "celery.loaders.app",
    "celery.worker.strategy", "celery_reliable.worker", "tests.integration.project.factory",
)  # fmt: skip

#: What the tests' project reads when its app is made, and what a terminal is asked for.  Much else
#: in the environment is read by somebody as he is imported.
LATE_VARIABLES = frozenset(
    {
        "BROKER_URL",
        "CELERY_RELIABLE_TRACE",
        "COLUMNS",
        "PROJECT_SETTINGS",
        "PYTEST_CURRENT_TEST",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "READY_KEY",
        "RESULT_URL",
        "TESTS_APART",
    }
)

_OWN_ENVIRONMENT = dict(os.environ)


Stream = IO[bytes] | IO[str]

_POLL_SECONDS = 0.01
_LONGEST_REQUEST = 1 << 20


def can_be_forked(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether one that is forked does not differ from one that starts anew.

    With `--from-scratch` all start anew.
    """
    if os.environ.get("TESTS_FROM_SCRATCH"):
        return False
    differing = {name for name, _ in environ.items() ^ _OWN_ENVIRONMENT.items()}
    return differing <= LATE_VARIABLES and "gevent" not in arguments


class Forked:
    """A process of the server's, with as much of `subprocess.Popen` as tests ask for."""

    def __init__(self, server: _Server, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code as `Popen` does, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask({"reap": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + (timeout or 0)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(_POLL_SECONDS)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        # Until it is reaped, nobody else has its pid.
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """The process that has imported all, seen from the tests' process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.preloaded", str(theirs.fileno())],
                cwd=REPOSITORY,
                env={**_OWN_ENVIRONMENT, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def ask(self, request: Mapping[str, Any], *descriptors: int) -> Any:
        """Send one request, and return what is answered."""
        data = json.dumps(request).encode()
        with self._lock:
            # The length is sent apart, with the descriptors: they come with the first bytes alone.
            socket.send_fds(self._socket, [len(data).to_bytes(4, "big")], list(descriptors))
            self._socket.sendall(data)
            answer = self._socket.recv(64)
        if not answer:
            raise AssertionError(f"the server of forks has ended ({self._process.poll()})")
        return json.loads(answer)

    def close(self) -> None:
        """End it. What it forked goes on."""
        self._socket.close()
        self._process.wait()


_server: _Server | None = None


def start_celery(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: Stream,
    stdout: Stream,
    stderr: Stream,
    module: str = "celery",
) -> Forked:
    """Run `python -m celery ARGUMENTS`, or another module, without its imports."""
    global _server
    if _server is None:
        _server = _Server()
        atexit.register(_server.close)
    wanted = {"module": module, "arguments": [*arguments], "cwd": str(cwd), "env": {**env}}
    streams = (stdin, stdout, stderr)
    return Forked(_server, _server.ask(wanted, *(stream.fileno() for stream in streams)))


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Answer until nobody asks any more (None), or return, in a child, what it is to be."""
    while True:
        length, descriptors, _, _ = socket.recv_fds(requests, 4, maxfds=3)
        if not length:
            return None
        data = b""
        while len(data) < int.from_bytes(length, "big"):
            data += requests.recv(_LONGEST_REQUEST)
        request: dict[str, Any] = json.loads(data)
        if "reap" in request:
            pid, status = os.waitpid(request["reap"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
            requests.sendall(json.dumps(answer).encode())
            continue
        if os.fork() == 0:
            # Whoever has the answer may send signals to the group of this pid.
            os.setsid()
            with requests:
                requests.sendall(json.dumps(os.getpid()).encode())
            for own, given in enumerate(descriptors):
                os.dup2(given, own)
                os.close(given)
            return request
        for given in descriptors:
            os.close(given)


def _become(request: Mapping[str, Any]) -> None:
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    # As `python -m` has it: the folder that it is started in, and PYTHONPATH.
    inherited = [entry for entry in sys.path if entry != str(REPOSITORY)]
    given = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [request["cwd"], *filter(None, given), *inherited]
    importlib.invalidate_caches()
    sys.argv[1:] = request["arguments"]


if __name__ == "__main__":
    for _module in MODULES:
        importlib.import_module(_module)
    _request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if _request is not None:
        _become(_request)
        _module = _request["module"]
        del _request
        # Celery's is imported, too, and is run once more as the main program.
        sys.modules.pop(f"{_module}.__main__", None)
        runpy.run_module(_module, run_name="__main__", alter_sys=True)
