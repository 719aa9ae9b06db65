"""A ledger of one test, and what a test does to those who use it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from celery import Celery
from celery.result import EagerResult
from celery.utils import uuid

from celery_reliable.app import reliable_of
from celery_reliable.compat.app import forget_servers
from celery_reliable.contrib.testing.held import Held, Moment
from celery_reliable.contrib.testing.own_workers import OwnWorkers
from celery_reliable.ledger import connect
from celery_reliable.model import SweepReport
from celery_reliable.operations import DeadLetters, Desk, TaskInFull
from celery_reliable.recovery import Sweeper
from celery_reliable.settings import ReliableConfig

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PrivateLedger"]

T = TypeVar("T")

#: Nobody wants to wait for a lease; and what became of each task can be asked.
_QUICK: dict[str, Any] = {
    "LEASE_SECONDS": 2,
    "WITNESS_SECONDS": 0.5,
    "SWEEP_SECONDS": 0.25,
    "QUEUED_SECONDS": 3,
    "KEEP_ENDED_ONE_IN": 1,
    "REDIS_URL": None,
    "CACHE": None,
}
_LOOK_SECONDS = 0.02


class PrivateLedger:
    """Queues, results and ledger of one app, on an empty database, while it is open.

    Args:
        app: the app. It publishes and reads there until this is closed.
        url: the database, which is emptied at the end.
        folder: where workers write their logs.
        app_path: where a worker finds the app, as for `celery -A`; without it none is started.
    """

    def __init__(self, app: Celery, url: str, folder: Path, *, app_path: str = "") -> None:
        self.app = app
        self.url = url
        self._folder = folder
        self._workers = OwnWorkers(folder, app_path)
        self._before: dict[str, Any] = {}
        config = reliable_of(app).config
        own = {name: getattr(config, name.lower()) for name in ReliableConfig.names()}
        #: The ledger's namespace; nobody else has it.
        self.namespace = f"test-{uuid()[:8]}"
        self._conf: dict[str, Any] = {
            **dict.fromkeys(("broker_url", "broker_read_url", "broker_write_url"), url),
            "result_backend": url,
            "broker_transport": None,
            "broker_transport_options": {},
            "broker_use_ssl": None,
            "result_backend_transport_options": {},
            "redis_backend_use_ssl": None,
            "task_always_eager": False,
            "worker_prefetch_multiplier": 1,
            "reliable": {**own, **_QUICK, "NAMESPACE": self.namespace},
        }

    def __enter__(self) -> Self:
        self._before = dict(self.app.conf.changes)
        self.app.conf.update(self._conf)
        self._forget()
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.end()
        if "desk" in self.__dict__:
            self.desk.close()
        self._forget()
        self.app.conf.changes.clear()
        self.app.conf.changes.update(self._before)
        client = connect(self.url).client()
        client.flushdb()
        client.close()

    def _forget(self) -> None:
        reliable_of(self.app).forget()
        forget_servers(self.app)

    @cached_property
    def desk(self) -> Desk:
        """All that an operator sees and does."""
        return Desk(self.app)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """The dead letters."""
        return DeadLetters(self.app)

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a real worker of the app, with one pool process; it is ended with the test.

        It imports the app by its path, so that tasks which a test defines are not there.
        """
        return self._workers.start(self._conf)

    def kill_worker(
        self,
        call: Any,
        *,
        when: Moment = "begins",
        child: bool = False,
        timeout_seconds: float = 60.0,
    ) -> Any:
        """Publish a call, let a real worker run it, SIGKILL that worker, and return the result.

        What becomes of the task then is for `assert_settled_once` to see; this does not wait.

        Args:
            call: a signature (``task.s(7)``), or a task without arguments.
            when: "begins": as its body is about to begin; "ended": when its body has done its work,
                and nothing of that is settled.
            child: kill only the pool process that runs it, not the whole worker.
            timeout_seconds: for so long the worker may take to come to that moment.
        """
        signature = call if hasattr(call, "set") else call.s()
        task_id = uuid()
        held = Held(self._folder, task_id, when)
        held.ask()
        result = signature.apply_async(task_id=task_id)
        self._some_worker()
        pid, parent = self._wait(
            held.process, timeout_seconds, f"{result.id} to come to where it is killed"
        )
        # The next attempt is not to stop, and this one must not go on.
        os.kill(pid, signal.SIGSTOP)
        held.let_go()
        if child:
            os.kill(pid, signal.SIGKILL)
        else:
            self._workers.kill(parent)
        return result

    def lapse_lease(self, nodename: str = "") -> list[str]:
        """Let the leases of workers be over now, as if nobody had heard of them for that long:
        those of one name, or all.  Return their ids.

        A worker that lives renews its lease with its next beat.
        """
        ledger = self.desk.ledger
        found = [
            one.worker
            for one in ledger.workers.leases()
            if not one.is_dead and str(one.facts.get("nodename") or "").startswith(nodename)
        ]
        past_ms = ledger.workers.time_ms() - 1
        if found:
            ledger.ask(
                "lapse",
                lambda client: client.zadd(
                    ledger.keys.workers, dict.fromkeys(found, past_ms), xx=True
                ),
            )
        return found

    def run_sweep(self, timeout_seconds: float = 15.0) -> SweepReport:
        """Run passes of the sweeper in this process, until one has looked at all and every worker
        whose lease is over is declared dead; return the report of the last.
        """
        workers = self.desk.ledger.workers
        sweeper = Sweeper(self.app)

        def swept() -> SweepReport | None:
            report, _ = sweeper.run_if_due()
            now_ms = workers.time_ms()
            lapsed = [o for o in workers.leases() if not o.is_dead and o.until_ms < now_ms]
            return None if lapsed else report

        try:
            return self._wait(swept, timeout_seconds, "a pass")
        finally:
            sweeper.close()

    def assert_settled_once(
        self, result: Any, *, outcome: str = "SUCCESS", timeout_seconds: float = 60.0
    ) -> TaskInFull | None:
        """Wait until a task has ended, and assert that it ended once, with this outcome.

        Starts a worker if none lives.  Raises AssertionError, with what the ledger knows of it, for
        a dead letter, another outcome, and a task that does not end in time.  Returns what is known
        of the task (``attempts``, ``losses``, ``history``); None for the result of an eager call.
        """
        if isinstance(result, EagerResult):
            assert result.state == outcome, f"it ended with {result.state}, eagerly"
            return None
        view = self.wait_until_ended(result, timeout_seconds)
        assert view.state == "ended", f"it is a dead letter: {view.reason} {view.cause}. {view}"
        assert view.outcome == outcome, f"it ended with {view.outcome}: {view}"
        return view

    def wait_until_ended(self, result: Any, timeout_seconds: float = 60.0) -> TaskInFull:
        """Wait until a task has ended or is a dead letter, and return what is known of it: its
        ``state`` is "ended" or "dead".  Starts a worker if none lives.

        Who has a result by ``get`` may be earlier than that.  Raises AssertionError.
        """
        if self.desk.tasks.get(result.id).is_known:
            self._some_worker()

        def ended() -> TaskInFull | None:
            view = self.desk.tasks.get(result.id)
            return view if view.state in ("ended", "dead") else None

        return self._wait(ended, timeout_seconds, f"{result.id} to end", result.id)

    def _some_worker(self) -> None:
        """Start a worker if none lives."""
        if not self._workers.has_one_that_runs() and not self._workers.is_another_alive(self.desk):
            self.start_worker()

    def _wait(
        self, look: Callable[[], T | None], timeout_seconds: float, what: str, task_id: str = ""
    ) -> T:
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            found = look()
            if found is not None:
                return found
            if self._workers.has_failed():
                break
            time.sleep(_LOOK_SECONDS)
        why = self.desk.tasks.get(task_id).why.sentence if task_id else ""
        raise AssertionError(f"waited in vain for {what}. {why}\n{self._workers.log()}")
