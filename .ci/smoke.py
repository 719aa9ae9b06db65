"""A real task in a real worker on a real Redis, with the package as it is installed.

``python smoke.py REDIS-SERVER``, in an environment that has the package and nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = """
import os, signal
from celery import Celery
from celery_reliable import ReliableTask

app = Celery("smoke", broker=os.environ["URL"], backend=os.environ["URL"])
app.conf.reliable = {"LEASE_SECONDS": 5, "SWEEP_SECONDS": 0.5}

@app.task(base=ReliableTask, bind=True)
def survives(self, number):
    if self.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [self.attempt, number]
"""


def main(redis_server: str) -> None:
    """Run it; raises what is wrong."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        os.environ["URL"] = f"redis://127.0.0.1:{port}/0"
        Path(folder, "smoke_project.py").write_text(PROJECT)
        os.chdir(folder)
        sys.path.insert(0, folder)
        options = ["--port", str(port), "--save", "", "--dir", folder]
        started = [subprocess.Popen([redis_server, *options], stdout=subprocess.DEVNULL)]
        try:
            wait_for_redis()
            command = [sys.executable, "-m", "celery", "-A", "smoke_project"]
            worker = [*command, "worker", "-c", "1", "--without-mingle", "--without-gossip"]
            with Path("worker.log").open("w") as log:
                started.append(subprocess.Popen(worker, stdout=log, stderr=log))
            look(command)
        except BaseException:
            sys.stderr.write(Path("worker.log").read_text())
            raise
        finally:
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
                process.wait(30)


def wait_for_redis() -> None:
    """Wait until the server answers."""
    import redis

    until = time.monotonic() + 20
    while True:
        try:
            redis.Redis.from_url(os.environ["URL"]).ping()
            return
        except redis.ConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def look(command: list[str]) -> None:
    """Publish, and look that it was recovered, as an operator sees it too."""
    import smoke_project  # type: ignore[import-not-found]

    import celery_reliable

    result: Any = smoke_project.survives.delay(7)
    assert result.get(timeout=60) == [2, 7], result.state
    said = subprocess.run(
        [*command, "reliable", "status", "--json"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["workers_by_state"]["alive"] == 1
    where = Path(celery_reliable.__file__).parent
    said_by = f"celery-reliable {celery_reliable.__version__} of {where}"
    sys.stdout.write(f"{said_by}: killed, recovered, settled\n")


if __name__ == "__main__":
    main(sys.argv[1])
