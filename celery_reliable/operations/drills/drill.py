"""One drill: what is done to its workers, and what is waited for."""

from __future__ import annotations

import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from celery_reliable.model import State
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.drills.ends import Ends
from celery_reliable.operations.drills.log import Log
from celery_reliable.operations.drills.processes import (
    DrillFailed,
    Processes,
    Worker,
    wait_until,
)
from celery_reliable.operations.drills.report import DrillReport

__all__ = ["KINDS", "Drill"]

#: What can be drilled.
KINDS = ("worker-kill", "child-kill", "freeze", "broker-restart", "poison")

#: How many tasks are running when something is done to their worker.
_HELD = 2
#: For a restart of the broker: so many tasks, so far apart, which take so long.
_STEADY, _PAUSE_SECONDS, _WORK_SECONDS = 40, 0.25, 0.3


class Drill:
    """Does one drill.  It is repeatable: each has a queue, tasks and workers of its own.

    Args:
        desk: of the app whose workers are drilled.
        app_path: where they find the app, as for `celery -A`.
        by: who does it, for the audit.
        timeout_seconds: for each thing that is waited for.
        restart_command: for "broker-restart": what restarts the broker, and ends when it is up.
    """

    def __init__(
        self,
        desk: Desk,
        app_path: str,
        *,
        by: str,
        timeout_seconds: float,
        restart_command: str = "",
    ) -> None:
        self._desk = desk
        self._ends = Ends(desk)
        self._app_path = app_path
        self._by = by
        self._timeout_seconds = timeout_seconds
        self._restart_command = restart_command
        self._recovery_seconds: float | None = None

    def run(self, kind: str, *, log: Path | None = None) -> DrillReport:
        """Do one of KINDS and return what came of it.

        *log*: where the log of its tasks is left, for whoever wants to check it.  Raises what the
        ledger raises at the beginning.
        """
        queue = f"celery-reliable-drill-{secrets.token_hex(4)}"
        does: dict[str, Callable[[], None]] = {
            "worker-kill": self._worker_kill,
            "child-kill": self._child_kill,
            "freeze": self._freeze,
            "broker-restart": self._broker_restart,
            "poison": self._poison,
        }
        problem = ""
        self._recovery_seconds = None
        with tempfile.TemporaryDirectory(prefix="drill-") as folder:
            self._log = Log(Path(folder))
            self._processes = Processes(self._app_path, Path(folder), queue)
            with self._desk.noted("drill", self._by, {"kind": kind, "queue": queue}):
                try:
                    does[kind]()
                    self._wait(self._are_all_settled, "an end of every task")
                except DrillFailed as exc:
                    problem = str(exc)
                finally:
                    report = self._report(kind, problem)
                    self._processes.end()
                    self._ends.clean_up(self._log.published(), queue, by=self._by)
            if log is not None and self._log.path.exists():
                log.write_bytes(self._log.path.read_bytes())
        return report

    # -- what is done

    def _worker_kill(self) -> None:
        victim = self._held_by_one()
        self._another()
        at = time.monotonic()
        victim.kill()
        self._wait_for_runs_again(at)

    def _child_kill(self) -> None:
        worker = self._held_by_one()
        pid = self._log.runs()[0].pid
        at = time.monotonic()
        worker.kill_child(pid)
        self._wait(lambda: bool(self._log.again()), "a second run of what the process had")
        (second,) = self._log.again().values()
        self._recovery_seconds = second.started_at - at
        self._processes.release()

    def _freeze(self) -> None:
        victim = self._held_by_one()
        self._another()
        at = time.monotonic()
        victim.freeze()
        self._wait_for_runs_again(at)
        # Another worker has its tasks, which it gets when the first is declared dead.
        frozen = self._log.runs()[0].worker
        self._log.declare(frozen, min(run.started_at for run in self._log.again().values()))
        self._processes.release()
        victim.thaw()
        # What it ran goes on, until it ends or the worker hears that it is not to: nothing of it
        # changes the ledger.
        self._wait(
            lambda: all(run.has_finished or not victim.has(run.pid) for run in self._log.runs()),
            "an end of what was frozen",
        )

    def _broker_restart(self) -> None:
        self._ready(self._processes.start_worker())
        publisher = self._processes.publish(
            "work", _WORK_SECONDS, count=_STEADY, pause_seconds=_PAUSE_SECONDS
        )
        self._wait(lambda: len(self._log.runs()) > _HELD, "tasks that run")
        at = time.monotonic()
        try:
            done = subprocess.run(
                self._restart_command,
                shell=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self._timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DrillFailed("The command that restarts the broker did not end.") from None
        if done.returncode:
            raise DrillFailed(
                f"The command that restarts the broker ended with {done.returncode}: "
                f"{done.stderr.strip()[-500:]}"
            )
        up_at = time.monotonic()

        def begun() -> list[float]:
            return [run.started_at for run in self._log.runs() if run.started_at > up_at]

        self._wait(lambda: bool(begun()), "a task that began after the restart")
        self._recovery_seconds = min(begun()) - at
        self._wait(lambda: publisher.poll() is not None, "an end of publishing")

    def _poison(self) -> None:
        self._ready(self._processes.start_worker())
        self._processes.publish("poison")
        self._wait(lambda: bool(self._log.runs()), "a run of the poison")
        at = self._log.runs()[0].started_at
        self._wait(lambda: bool(self._letters()), "a dead letter")
        self._recovery_seconds = time.monotonic() - at

    # -- what is waited for

    def _held_by_one(self) -> Worker:
        """Start a worker, and have it run all the tasks that there are."""
        worker = self._processes.start_worker(concurrency=_HELD)
        self._ready(worker)
        self._processes.publish("hold", 4 * self._timeout_seconds, count=_HELD)
        self._wait(lambda: len(self._log.runs()) == _HELD, "a run of each task")
        return worker

    def _another(self) -> None:
        self._ready(self._processes.start_worker(concurrency=_HELD))

    def _ready(self, worker: Worker) -> None:
        self._wait(lambda: worker.is_ready, "a worker that is ready")

    def _wait_for_runs_again(self, at: float) -> None:
        self._wait(lambda: len(self._log.again()) == _HELD, "a second run of each task")
        self._recovery_seconds = max(run.started_at for run in self._log.again().values()) - at

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, time.monotonic() + self._timeout_seconds, what)

    def _are_all_settled(self) -> bool:
        return all(
            self._ends.state(task) in ("", State.DEAD.value) for task in self._log.published()
        )

    def _letters(self) -> list[str]:
        return [t for t in self._log.published() if self._ends.state(t) == State.DEAD.value]

    # -- what came of it

    def _report(self, kind: str, problem: str) -> DrillReport:
        published = self._log.published()
        states = {task: self._ends.state(task) for task in published}
        letters = [task for task, state in states.items() if state == State.DEAD.value]
        unfinished = set(self._log.unfinished())
        unfinished |= {task for task, state in states.items() if state}
        for task in published:
            if task not in unfinished or task in letters:
                state = "FAILURE" if task in letters else "SUCCESS"
                self._log.settled(task, state, time.monotonic())
        # A poison is to end as a dead letter, and nothing else is.
        lost = unfinished - set(letters if kind == "poison" else ())
        return DrillReport(
            kind=kind,
            published=len(published),
            recovery_seconds=self._recovery_seconds,
            runs=len(self._log.runs()),
            lost=len(lost),
            doubled=self._log.overlaps(),
            zombies=self._log.zombies(),
            dead_letters=len(letters),
            problem=problem,
        )
