"""Who moves next: actors are greenlets that stand still before every command to the server."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from greenlet import greenlet

from celery_reliable.context import WorkerProcess, set_current_worker


class Killed(BaseException):
    """What a killed process would not notice; whoever catches it cannot do anything any more."""


class Process:
    """One process of the world, with a clock that may be wrong."""

    def __init__(self, pid: int, name: str, parent: Process | None = None) -> None:
        self.pid = pid
        self.name = name
        self.parent = parent
        self.is_alive = True
        self.is_frozen = False
        #: Of a worker; its children have the same.
        self.worker: WorkerProcess | None = parent.worker if parent else None
        #: How far its wall clock is ahead of the truth, and how long its machine was suspended.
        self.skew_seconds = parent.skew_seconds if parent else 0.0
        self.suspended_seconds = parent.suspended_seconds if parent else 0.0
        #: A task of which this process has no code.
        self.lacks = parent.lacks if parent else ""
        self.actors: list[Actor] = []


class Actor:
    """One thread of a process: what it does is real code, run in a greenlet."""

    def __init__(
        self, schedule: Schedule, process: Process, name: str, run: Callable[[], Any]
    ) -> None:
        self.schedule = schedule
        self.process = process
        self.name = name
        self.wake_ms = 0.0
        #: When it moved last.
        self.moved_ms = -1.0
        self.is_over = False
        #: The command before which it stands still.
        self.asks: Any = None
        #: What it raised, as a surprise.
        self.error: BaseException | None = None
        self._run = run
        self._greenlet = greenlet(self._main, parent=schedule.hub)

    def _main(self) -> None:
        try:
            if self.process.is_alive:
                self._run()
        except Killed:
            # As the process is gone.
            pass
        except KeyboardInterrupt:
            # Who ends the driver ends all of it: the hub raises it.
            raise
        except BaseException as exc:
            self.error = exc
        finally:
            self.is_over = True

    def go_on(self) -> None:
        """Let it move to its next stop."""
        self.moved_ms = self.schedule.now_ms
        before = self.schedule.current
        self.schedule.current = self
        set_current_worker(self.process.worker)
        try:
            self._greenlet.switch()
        finally:
            self.schedule.current = before
            set_current_worker(before.process.worker if before else None)


class Schedule:
    """The actors of one world and its time, which passes only when `pass_time` says so."""

    def __init__(self, choice: Random) -> None:
        self.choice = choice
        self.hub = greenlet.getcurrent()
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        #: The true time since the world began.
        self.now_ms = 0.0
        #: How often an actor goes on without letting others move.
        self.haste = 0.5
        self.errors: list[tuple[str, BaseException]] = []
        #: Who does not move, whatever time it is.
        self.held: set[Actor] = set()

    def start(self, process: Process, name: str, run: Callable[[], Any]) -> Actor:
        """Let a thread of *process* begin; it moves when it is chosen."""
        actor = Actor(self, process, f"{process.name}/{name}", run)
        self.actors.append(actor)
        process.actors.append(actor)
        return actor

    def ready(self) -> list[Actor]:
        """Return who can move now."""
        self._sort_out()
        return [one for one in self.actors if one.wake_ms <= self.now_ms and self._is_free(one)]

    def next_wake_ms(self) -> float | None:
        """Return when the next one wakes up who sleeps now."""
        times = [one.wake_ms for one in self.actors if self._is_free(one)]
        return min(times) if times else None

    def _is_free(self, actor: Actor) -> bool:
        return not actor.process.is_frozen and actor not in self.held

    def _sort_out(self) -> None:
        over = [actor for actor in self.actors if actor.is_over]
        if not over:
            return
        for actor in over:
            actor.process.actors.remove(actor)
            if actor.error is not None:
                self.errors.append((actor.name, actor.error))
        self.actors = [actor for actor in self.actors if not actor.is_over]

    def kill(self, process: Process) -> None:
        """SIGKILL: no thread of it sends anything any more."""
        process.is_alive = False

    def bury_the_dead(self) -> None:
        """Let the threads of killed processes unwind, which changes nothing outside of them."""
        for actor in [one for one in self.actors if not one.process.is_alive]:
            while not actor.is_over:
                actor.go_on()
        self._sort_out()

    # What actors call.

    def stop_here(self) -> None:
        """Let others move first, perhaps; raises Killed in a process that is gone."""
        actor = self.current
        if actor is None:
            return
        if actor.process.is_alive and self.choice.random() >= self.haste:
            self._stand()
        if not actor.process.is_alive:
            raise Killed

    def sleep(self, seconds: float) -> None:
        """Let time pass for the actor that calls; the driver itself does not wait."""
        actor = self.current
        if actor is None:
            self.now_ms += seconds * 1000
            return
        actor.wake_ms = self.now_ms + max(seconds, 0.001) * 1000
        if actor.process.is_alive:
            self._stand()
        if not actor.process.is_alive:
            raise Killed

    def _stand(self) -> None:
        parent = greenlet.getcurrent().parent
        assert parent is not None
        parent.switch()
