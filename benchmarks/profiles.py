"""Where the time goes in a worker's process: py-spy's flame graphs."""

from __future__ import annotations

import signal
import subprocess
import sysconfig
from pathlib import Path

from benchmarks.contenders import Contender
from benchmarks.measures import BODY_BYTES, Scale
from benchmarks.rig import Rig

__all__ = ["profile"]

_WRITE_SECONDS = 60.0
# A process that is halted for each sample wakes threads that only wait, and they count as busy.
_OPTIONS = ("record", "--nonblocking", "--rate", "250")


def profile(rig: Rig, contender: Contender, scale: Scale, which: str, folder: Path) -> Path:
    """Draw what the worker's "main" process, or a "child" of it, does while it works tasks off.

    Raises RuntimeError when py-spy cannot: it has to be installed, and needs the right to trace
    other processes.
    """
    rig.reset()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{contender.name}-{which}.svg"
    with rig.producer(contender) as producer:
        producer.ask("publish", count=scale.tasks, size=BODY_BYTES)
        with rig.worker(contender) as worker:
            rig.wait_for_results(scale.tasks // 10)
            pid = worker.pid if which == "main" else min(worker.children())
            _record(rig, pid, path, until_results=scale.tasks - scale.tasks // 10)
            rig.wait_for_results(scale.tasks)
    return path


def _record(rig: Rig, pid: int, path: Path, *, until_results: int) -> None:
    program = Path(sysconfig.get_path("scripts"), "py-spy")
    if not program.exists():
        raise RuntimeError(f"a profile needs py-spy, and there is none at {program}")
    process = subprocess.Popen(
        [str(program), *_OPTIONS, "--pid", str(pid), "--output", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        rig.wait_for_results(until_results)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=_WRITE_SECONDS)
    finally:
        process.kill()
        process.wait()
    if process.returncode or not path.exists():
        raise RuntimeError(f"py-spy ended with {process.returncode}: {told}")
