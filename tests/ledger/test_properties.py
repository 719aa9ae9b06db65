"""Random walks of all actors on a real server keep the promises.

As in all tests of this folder the model judges each reply and each write (`tests.support.traces`).
The walk itself asks for what needs no model: nothing runs twice at once, and what is over changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, TypeVar

import pytest

from celery_reliable.ledger import answers
from celery_reliable.model import Claim, Reason, State, TaskRef
from tests.ledger.scene import LOOK_MS, Published, Scene
from tests.support.promises import promise

pytestmark = pytest.mark.full

T = TypeVar("T")

#: What attempts report of themselves, in time or late.
ENDINGS = ("settle",) * 4 + ("lose",) * 2 + ("inherit",) * 4
ENDINGS += ("take", "retry", "wait", "replace", "release", "bury")
#: What others do with a task.
ACTS = ("publish",) * 2 + ("deliver",) * 9 + ("sweep",) * 3 + ("replay",) * 2
ACTS += ("acknowledge", "repeat")
RARE = (
    "withdraw",
    "cancel",
    "expire",
    "discard",
    "bury_message",
    "foreign",
    "zombie",
    "kill_worker",
)


class Walk:
    """Messages that were delivered may come again, and attempts that are over may report."""

    def __init__(self, scene: Scene, choice: Random) -> None:
        self.scene, self.ledger, self.choice = scene, scene.ledger, choice
        self.numbers = count(1)
        self.workers, self.dead = ["me", "other"], ["nobody"]
        self.messages: list[Published] = [scene.publish("a")]
        self.claims: list[Claim] = []
        #: Publications and claims: a copy of each may come late.
        self.calls: list[Callable[[], object]] = []
        self.n_settled = 0

    def step(self) -> None:
        """Somebody does something."""
        chance, message = self.choice.random(), self.latest(self.messages)
        if chance < 0.07:
            self.act(self.choice.choice(RARE), message)
        elif chance < 0.35 and self.claims:
            self.end(self.latest(self.claims), self.choice.choice(ENDINGS))
        else:
            self.act(self.choice.choice(ACTS), message)
        assert self.scene.index_faults() == []

    def latest(self, items: Sequence[T]) -> T:
        """Mostly the latest, which makes stories and not only noise."""
        return items[-1 - self.choice.choice([0, 0, self.choice.randrange(10)]) % len(items)]

    def act(self, what: str, message: Published) -> None:
        """Publish, deliver, sweep, or do what operators do."""
        ledger, scene, task_id = self.ledger, self.scene, message.task.id
        worker = self.choice.choice(self.workers)
        if what == "publish":
            self.publish(self.choice.choice("aaab"), 0)
        elif what in ("deliver", "foreign", "zombie"):
            message = scene.foreign(task_id) if what == "foreign" else message
            self.deliver(message, self.choice.choice(self.dead) if what == "zombie" else worker)
        elif what == "sweep":
            self.sweep()
        elif what == "acknowledge":
            for claim in scene.beat(worker).claims(worker):
                scene.workers.acknowledge(claim)
        elif what == "repeat" and self.calls:
            self.changes_nothing(self.latest(self.calls))
        elif what == "kill_worker":
            self.kill(worker)
        elif what == "bury_message":
            ledger.bury_message(
                task_id, Reason.UNPROCESSABLE, exception="", traceback="", message="raw",
                name=message.task.name, epoch=message.epoch, is_unproved=not message.generation,
            )  # fmt: skip
        else:
            epoch = f"{next(self.numbers)}-replay"
            acts: dict[str, Callable[[], object]] = {
                "replay": lambda: self.replay(task_id, epoch),
                "withdraw": lambda: ledger.withdraw(task_id, message.epoch),
                "cancel": lambda: ledger.revoke(task_id),
                "expire": lambda: ledger.cancel(task_id, epoch=message.epoch),
                "discard": lambda: ledger.discard(task_id),
            }
            acts.get(what, bool)()

    def publish(self, task_id: str, attempt: int, **how: Any) -> object:
        """Record a publication, and keep its message."""
        number, epoch = next(self.numbers), self.ledger.senders.new_epoch(attempt)
        task = TaskRef(task_id, "app.work", 1, time_to_run_ms=number % 2 * LOOK_MS)
        how["state"] = self.choice.choice([State.QUEUED, State.PARKED])
        how["due_in_ms"] = 0 if how["state"] is State.PARKED else LOOK_MS

        def record() -> object:
            return self.scene.record(task, epoch, **how)

        answer = self.again(record)
        self.ledger.senders.answered(epoch)
        self.calls.append(record)
        if isinstance(answer, answers.Recorded):
            self.messages.append(Published(task, epoch, self.ledger.generation))
        return answer

    def deliver(self, message: Published, worker: str) -> None:
        """A worker claims what it was delivered."""
        token, before = f"turn {next(self.numbers)}", self.ledger.find(message.task.id)

        def ask() -> Any:
            return self.scene.ask(message, worker, token=token, content="as delivered")

        answer = self.again(ask)
        if not isinstance(answer, answers.Claimed):
            return
        assert worker in self.workers, "claimed by who is dead"
        assert before is None or before.state is not State.RUNNING, "two attempts at once"
        assert before is None or before.stopping_on not in self.workers, "two attempts at once"
        self.claims.append(Claim(message.task.id, answer.attempt, worker, token, answer.losses))
        # A message from outside proves nothing of its task, and would begin it anew.
        if message.epoch:
            self.calls.append(ask)

    def end(self, claim: Claim, how: str) -> None:
        """An attempt reports its end."""
        if how == "inherit":
            self.publish(claim.task_id, 0, heir=claim.token)
            return
        record = self.ledger.find(claim.task_id)
        is_current = record is not None and record.token == claim.token
        due_in_ms = self.choice.choice([0, LOOK_MS])
        ends: dict[str, Callable[[], object]] = {
            "settle": lambda: self.ledger.settle(claim),
            "lose": lambda: self.scene.lose(claim, max_losses=1),
            "take": lambda: self.scene.take(claim, max_losses=1),
            "retry": lambda: self.publish(claim.task_id, claim.attempt, claim=claim),
            "wait": lambda: self.publish(
                claim.task_id, claim.attempt - 1, claim=claim, waits_for="object"
            ),
            "replace": lambda: self.replaced(claim, due_in_ms),
            "release": lambda: self.ledger.release(claim, due_in_ms=due_in_ms),
            "bury": lambda: self.scene.bury(claim),
        }
        if is_current or how in ("retry", "wait"):
            # Of a publication that is refused its sender's number is noted.
            self.n_settled += isinstance(ends[how](), answers.Settled)
        else:
            self.changes_nothing(ends[how])

    def replaced(self, claim: Claim, due_in_ms: int) -> object:
        self.ledger.bequeath(claim, heir=claim.token)
        return self.ledger.replace(claim, due_in_ms=due_in_ms)

    def replay(self, task_id: str, epoch: str) -> None:
        """Return a dead letter, whose new message may come."""
        answer = self.again(
            lambda: self.ledger.replay(task_id, epoch=epoch, message="replayed", due_in_ms=0)
        )
        if isinstance(answer, answers.Replayed):
            task = TaskRef(task_id, "app.work", 1)
            self.messages.append(Published(task, epoch, self.ledger.generation))

    def sweep(self) -> None:
        """Look at what is due."""
        for due in self.ledger.due(10).dues:
            record = self.ledger.find(due.task_id)
            assert record is not None
            if record.state is State.DEAD:
                self.ledger.announced(due.task_id, self.scene.letter(due.task_id).buried_ms)
            elif record.is_called_off:
                if self.ledger.is_outlived(due.task_id, record.stopping_on):
                    self.ledger.let_go(due.task_id)
                else:
                    self.ledger.postpone(due, due_in_ms=LOOK_MS)
            else:
                self.ledger.resend(due, due_in_ms=LOOK_MS)
                self.ledger.postpone(due, due_in_ms=LOOK_MS)

    def kill(self, worker: str) -> None:
        """A worker is declared dead, what it ran is lost, and another takes its place."""
        scene, name = self.scene, f"worker {next(self.numbers)}"
        scene.kill_worker(worker)
        verdict = scene.lease(worker).verdict
        for claim, _ in scene.workers.claims(worker).values():
            scene.lose(claim, max_losses=1, is_taken=True, verdict=verdict)
        assert scene.workers.deregister(worker, in_unacked=0)
        self.workers.remove(worker)
        self.dead.append(worker)
        self.workers.append(name)
        scene.start_worker(name)

    def again(self, call: Callable[[], T]) -> T:
        """Call, and perhaps call again: the answers must be the same."""
        first = call()
        assert self.choice.random() < 0.7 or call() == first
        return first

    def changes_nothing(self, call: Callable[[], object]) -> None:
        before = self.scene.snapshot()
        call()
        assert self.scene.snapshot() == before


@promise("never-two", "late-changes-nothing")
@pytest.mark.parametrize("seed", range(8))
def test_a_long_walk_keeps_the_promises(scene: Scene, seed: int) -> None:
    walk = Walk(scene, Random(seed))

    for _ in range(800):
        walk.step()

    # The walk has been somewhere.
    assert walk.n_settled > 5
