"""One scenario, played once on a stage, with one command cut or none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis

from proof.checker import NotALogError, check
from proof.cuts.log import Log, Outcomes
from proof.cuts.points import Point
from proof.cuts.proxy import CuttingProxy, ScriptNames
from proof.cuts.scenarios import OBJECTS, Scenario
from proof.leftovers import LEDGER, left_in
from tests.integration.project.factory import Settings
from tests.support.effects import Effects
from tests.support.preloaded import REPOSITORY, start_celery
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer

__all__ = ["Outcome", "Play", "Stage"]

#: Times as short as settings allow on a machine that is busy with other plays.
RELIABLE = {
    "LEASE_SECONDS": 3,
    "SWEEP_SECONDS": 0.5,
    "QUEUED_SECONDS": 4.6,
    "WITNESS_SECONDS": 1,
}
#: Twenty times what it takes on a machine that does nothing else.
DEADLINE_SECONDS = 240.0
_POLL_SECONDS = 0.1
_APP = "tests.integration.project.app"
_QUIET = ("--without-mingle", "--without-gossip", "--without-heartbeat")
#: It is there while a pass of a sweeper goes on.
_PASS = f"{LEDGER}pass"


@dataclass(frozen=True)
class Outcome:
    """What came of a play."""

    point: Point | None
    has_cut: bool
    problems: list[str]
    seconds: float
    rows: list[dict[str, Any]]
    #: What was sent, by role and name, until all was over; and what was under way at the begin.
    counts: dict[tuple[str, str], int]
    under_way: set[tuple[str, str]]

    @property
    def word(self) -> str:
        """How it is counted."""
        if self.problems:
            return "FAULT"
        return "held" if self.has_cut or self.point is None else "not reached"


class Stage:
    """A Redis, a proxy before it, and who listens; plays follow one another on it.

    With *stock* the tasks are Celery's own, with late acknowledgement.
    """

    def __init__(
        self,
        folder: Path,
        names: ScriptNames,
        *,
        stock: bool = False,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.folder = folder
        #: What is played is to end at once, and says nothing.
        self.is_broken_off = False
        self.deadline_seconds = deadline_seconds
        self.names = names
        (folder / "redis").mkdir(parents=True)
        (folder / "effects").mkdir()
        self.server = RedisServer(folder / "redis", {"appendonly": "no"})
        self.effects_server = RedisServer(folder / "effects", {"appendonly": "no"})
        self.server.start()
        self.effects_server.start()
        self.client, self._results = self.server.client(), self.server.client(db=1)
        #: A worker of an earlier play that is as good as new, as nothing is left of that.
        self._used: Worker | None = None
        self.effects = Effects(self.effects_server.client())
        self.log = Log(self.effects_server.client())
        self.proxy = CuttingProxy(self.server.port, names)
        self.proxy.__enter__()
        # A client that nobody has is closed.
        self._listening = self.server.client(socket_timeout=None)
        self._outcomes = Outcomes(self._listening, Log(self.effects_server.client()))
        self.settings = Settings(
            broker_url=self.proxy.url(),
            result_url=self.proxy.url(1),
            effects_url=self.effects_server.url(),
            reliable=RELIABLE,
            stock=stock,
        )

    def close(self) -> None:
        """End all of it."""
        if self._used is not None:
            self._used.end()
        self._outcomes.close()
        self.proxy.__exit__()
        self.server.kill()
        self.effects_server.kill()

    def play(self, scenario: Scenario, point: Point | None = None, *, fresh: bool) -> Outcome:
        """Play it once: from empty servers on, or, unless it has to be *fresh*, with a worker that
        another play has left.
        """
        if fresh or not scenario.takes_used or self._used is None or not self._used.is_running:
            self._begin_anew()
        self.effects.clear()
        play = Play(self, scenario, point, self._used)
        self._used = None
        began = time.monotonic()
        try:
            problems = play.run()
            counts, under_way = dict(self.proxy.counts), set(self.proxy.under_way)
            has_cut = self.proxy.has_cut.is_set()
        finally:
            self.proxy.disarm()
            self._used = play.end()
        rows = self.log.rows(OBJECTS)
        if problems:
            self._begin_anew()
        seconds = time.monotonic() - began
        return Outcome(point, has_cut, problems, seconds, rows, counts, under_way)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is left, and nobody has anything in hand that is still to come.

        A pass of a sweeper may have read a record, and send its message when the task has ended.
        """
        return not self.left() and not self.client.exists(_PASS) and not self.left()

    def left(self) -> list[str]:
        """The keys that would not be there if nothing had happened."""
        return left_in(self.client, self._results)

    def _begin_anew(self) -> None:
        if self._used is not None:
            self._used.end()
            self._used = None
        self.client.flushall()
        for text in list(self.names.texts.values()):
            self.client.script_load(text)


class Play:
    """The processes of one play.  Who dies is started again, as a supervisor does."""

    def __init__(
        self, stage: Stage, scenario: Scenario, point: Point | None, used: Worker | None
    ) -> None:
        self.stage = stage
        self._used = used
        self.scenario = scenario
        self.point = point
        self.subject: Worker | None = None
        self.victim: Worker | None = None
        self._workers: list[Worker] = [used] if used is not None else []
        self._rescuer: Worker | None = None
        self._folder = stage.folder / "logs"
        self._folder.mkdir(exist_ok=True)
        self._deadline = time.monotonic() + stage.deadline_seconds

    def run(self) -> list[str]:
        """Play, and return what is wrong in the end."""
        trouble = []
        try:
            self.scenario.prepare(self)
            self.stage.proxy.arm(self.point)
            self.scenario.act(self)
            self.wait_until_over()
        except (AssertionError, TimeoutError) as error:
            trouble.append(f"{type(error).__name__}: {error}")
        return [*trouble, *self._problems()]

    def start_subject(self) -> None:
        """Start the worker whose commands are counted."""
        if self._used is not None:
            self.subject = self._used
            self.stage.proxy.tell_apart(self._used.pid, "main")
            return
        self.subject = self._start("subject", "main")
        self.subject.wait_until_ready(DEADLINE_SECONDS)

    def start_other(self) -> Worker:
        """Start another, whose commands are nobody's business."""
        worker = self._start("other", None)
        worker.wait_until_ready(DEADLINE_SECONDS)
        return worker

    def publish(self, what: str = "") -> None:
        """Run a publisher to its end; when it is killed, another one."""
        while self._run_publisher(what or self.scenario.name) == -signal.SIGKILL:
            pass

    def replay_letters(self) -> None:
        """Wait for a dead letter, and replay it, until there is none.

        Who dies before its failure is stored runs again, and leaves none.
        """
        dead = f"{LEDGER}dead"
        self._wait_until(lambda: bool(self.stage.client.zcard(dead)) or self._is_over())
        while self.stage.client.zcard(dead):
            self.publish("replay")

    def wait_for_runs(self, count: int) -> None:
        """Wait until so many runs have begun."""
        self._wait_until(lambda: len(self.stage.effects.runs()) >= count)

    def wait_for_passes(self, count: int) -> None:
        """Wait until the subject has begun so many passes of the sweeper since it was armed."""
        counts = self.stage.proxy.counts
        self._wait_until(lambda: counts["sweeper", "begin_pass"] >= count)

    def wait_until_over(self) -> None:
        """Wait until each task has its outcome, and nothing of it is left."""
        self._wait_until(self._is_over)

    def end(self) -> Worker | None:
        """End all processes but one worker that has nothing to do, if there is one; return it."""
        left = self._rescuer or self.subject
        if left is not None and not (left.is_ready and self.scenario.takes_used):
            left = None
        for worker in self._workers:
            if worker is not left:
                worker.end()
        return left

    def _start(self, name: str, role: str | None) -> Worker:
        ready_key = f"ready:{uuid4()}"
        worker = Worker(
            name,
            app=_APP,
            environ=self._environ(ready_key),
            log_path=self._log_path(name),
            is_ready=lambda: bool(self.stage.effects.client.exists(ready_key)),
            concurrency=1,
            options=_QUIET,
        )
        if role is not None:
            self.stage.proxy.tell_apart(worker.pid, role)
        self._workers.append(worker)
        return worker

    def _run_publisher(self, what: str) -> int:
        with self._log_path("publisher").open("ab") as log, open(os.devnull, "rb") as nothing:
            process = start_celery(
                [what],
                module="proof.cuts.publisher",
                cwd=self._folder,
                env={**self._environ("ready:none"), "PYTHONPATH": str(REPOSITORY)},
                stdin=nothing,
                stdout=log,
                stderr=log,
            )
        self.stage.proxy.tell_apart(process.pid, "publisher")
        try:
            self._wait_until(lambda: process.poll() is not None)
        finally:
            process.kill()
        code = process.wait(10)
        if code not in (0, -signal.SIGKILL):
            raise AssertionError(f"the publisher ended with {code}")
        return code

    def _environ(self, ready_key: str) -> dict[str, str]:
        own = {**self.stage.settings.to_environ(), "READY_KEY": ready_key}
        return {**os.environ, **own}

    def _log_path(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Raises TimeoutError when the play lasts too long."""
        while not condition():
            if self.stage.is_broken_off or time.monotonic() > self._deadline:
                raise TimeoutError(f"not over within {self.stage.deadline_seconds:g} s")
            if self.subject is not None and not self.subject.is_running and not self._rescuer:
                self._rescuer = self._start("rescuer", None)
            time.sleep(_POLL_SECONDS)

    def _is_over(self) -> bool:
        return self.stage.is_at_rest and not self._open_tasks()

    def _open_tasks(self) -> list[str]:
        open_ = ("lost", "unfinished", "chord missing")
        return [fault for fault in self._faults() if fault.startswith(open_)]

    def _faults(self) -> list[str]:
        try:
            verdict = check(sorted(self.stage.log.rows(OBJECTS), key=lambda row: row["at"]))
        except NotALogError as error:
            return [f"lost: {error}"]
        return [str(fault) for fault in verdict.faults]

    def _problems(self) -> list[str]:
        try:
            left = [f"stray: {key}" for key in self.stage.left()]
        except redis.RedisError as error:
            left = [f"stray: {error}"]
        return [*self._faults(), *left]
