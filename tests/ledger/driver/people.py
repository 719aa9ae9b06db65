"""Who publishes, and who looks after the fleet."""

from __future__ import annotations

from typing import Any

from celery_reliable.exceptions import PublishUnknown
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.queues import purge
from celery_reliable.operations.uninstall import release
from celery_reliable.recovery.revocations import call_off
from celery_reliable.recovery.sweeper import Sweeper
from tests.ledger.driver.tasks import QUEUE


class People:
    """Publishers and operators, each act a process of its own that may be killed."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self._sweepers: list[Sweeper] = []
        self._n_calls = 0

    def publish(
        self, name: str, task_id: str, place: str, countdown: float = 0.0, **asked: Any
    ) -> None:
        """Somebody calls a task."""
        world, task = self.world, self.world.app.tasks[name]
        self._n_calls += 1
        call = world.observer.planned(f"n{self._n_calls}", task_id, name, place)
        named = world.naming.options_of(call)
        world.note(f"publish {name} {task_id} {call.nonce} {place} {call.plan} in {countdown}")

        def run() -> None:
            world.observer.began(call)
            options: dict[str, Any] = {"countdown": countdown} if countdown else {}
            options.update(named, **asked)
            answer = ""
            try:
                answer = str(task.apply_async((call.nonce, place), task_id=task_id, **options).id)
            except Exception as exc:
                # Its caller was told, whether it may run or not.
                world.note(f"{call.nonce} is refused: {exc!r:.80}")
                if isinstance(exc, PublishUnknown):
                    # A copy may come when the id is alive no more.
                    call.is_second = False
            else:
                world.note(f"{call.nonce} is accepted as {answer}")
            world.observer.answered(call, answer)

        process = world.process(f"publisher {call.nonce}")
        world.schedule.start(process, "call", run)

    # Operators.

    def act(self, what: str, task_id: str) -> None:
        """Somebody looks after the fleet."""
        world = self.world
        world.note(f"operator: {what} {task_id}")
        acts = {
            "revoke": lambda: call_off(world.app, [task_id]),
            "replay": lambda: DeadLetters(world.app).replay(task_id),
            "discard": lambda: DeadLetters(world.app).discard(task_id),
            "purge": lambda: purge(world.app, [QUEUE]),
            "release": lambda: release(world.app),
        }

        def meant() -> None:
            if what in ("revoke", "discard", "purge"):
                world.observer.excuse(task_id if what != "purge" else "")

        def run() -> None:
            meant()
            if what == "replay":
                world.observer.replayed(task_id)
            before_ms = world.observer.released_ms
            after_ms = before_ms
            if what == "release":
                # Step by step, unless it is refused; a step may take long.
                world.observer.released_ms = float("inf")
            try:
                acts[what]()
                after_ms = world.schedule.now_ms
            except world.failures as exc:
                world.note(f"operator: {what} {task_id} ended by {exc!r:.80}")
                if "are alive" not in str(exc):
                    after_ms = world.schedule.now_ms
            if what == "release":
                world.observer.released_ms = after_ms
            meant()

        world.schedule.start(world.process(f"operator {what}"), what, run)

    # Beat.

    def beat(self) -> None:
        """Another process sweeps, once."""
        world = self.world
        world.note("beat sweeps")
        sweeper = Sweeper(world.app)
        self._sweepers.append(sweeper)

        def run() -> None:
            try:
                sweeper.run_if_due()
            except world.failures:
                sweeper.broker.close()

        world.schedule.start(world.process("beat"), "sweep", run)

    def close(self) -> None:
        """Close what they opened."""
        for sweeper in self._sweepers:
            sweeper.close()
