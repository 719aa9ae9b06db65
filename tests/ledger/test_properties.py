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

from celery_reliable.ledger import answers, taken_from
from celery_reliable.model import Claim, Reason, Room, State, TaskRef
from tests.ledger.scene import LOOK_MS, Published, Scene
from tests.support.promises import promise

pytestmark = pytest.mark.full

T = TypeVar("T")

#: What attempts report of themselves, in time or late.
ENDINGS = ("settle",) * 4 + ("lose",) * 2 + ("inherit",) * 4
ENDINGS += ("take", "retry", "replace", "release", "bury")
#: What attempts do with their object before that.
WITH_OBJECT = ("place", "place", "free")
#: What others do with a task.
ACTS = ("publish",) * 2 + ("deliver",) * 9 + ("sweep",) * 3 + ("replay",) * 2
ACTS += ("acknowledge", "repeat", "wake", "wake", "read")
RARE = (
    "withdraw", "cancel", "expire", "discard", "bury_message", "foreign", "zombie", "kill_worker",
)  # fmt: skip


class Walk:
    """Messages that were delivered may come again, and attempts that are over may report."""

    def __init__(self, scene: Scene, choice: Random, ids: str) -> None:
        self.scene, self.ledger, self.choice, self.ids = scene, scene.ledger, choice, ids
        self.numbers = count(1)
        self.workers, self.dead = ["me", "other"], ["nobody"]
        self.messages: list[Published] = [scene.publish("a")]
        self.claims: list[Claim] = []
        #: Publications and claims: a copy of each may come late.
        self.calls: list[Callable[[], object]] = []

    def step(self) -> None:
        """Somebody does something."""
        chance, message = self.choice.random(), self.latest(self.messages)
        if chance < 0.07:
            self.act(self.choice.choice(RARE), message)
        elif chance < 0.35 and self.claims:
            how = self.choice.choice((*ENDINGS, *WITH_OBJECT))
            (self.handle if how in WITH_OBJECT else self.end)(self.latest(self.claims), how)
        else:
            self.act(self.choice.choice(ACTS), message)
        assert self.scene.index_faults() == []

    def latest(self, items: Sequence[T]) -> T:
        """Mostly the latest, which makes stories and not only noise."""
        return items[-1 - self.choice.choice([0, 0, self.choice.randrange(10)]) % len(items)]

    def act(self, what: str, message: Published) -> None:
        """Publish, deliver, sweep, or do what operators do."""
        ledger, scene, task_id = self.ledger, self.scene, message.task.id
        worker, zombie = self.choice.choice(self.workers), self.choice.choice(self.dead)
        epoch = f"{next(self.numbers)}-replay"
        letter = self.choice.choice([task_id, *(id_ for id_, _ in ledger.letters_after(None, 100))])
        acts: dict[str, Callable[[], object]] = {
            "publish": lambda: self.publish(self.choice.choice(self.ids), 0),
            "deliver": lambda: self.deliver(message, worker),
            "foreign": lambda: self.deliver(scene.foreign(task_id), worker),
            "zombie": lambda: self.deliver(message, zombie),
            "sweep": self.sweep,
            "acknowledge": lambda: [
                scene.workers.acknowledge(one) for one in taken_from(scene.beat(worker), worker)
            ],
            "repeat": lambda: self.calls and self.changes_nothing(self.latest(self.calls)),
            "wake": self.wake,
            "read": lambda: self.read(letter),
            "kill_worker": lambda: self.kill(worker),
            "replay": lambda: self.replay(letter, epoch),
            "withdraw": lambda: ledger.withdraw(task_id, message.epoch),
            "cancel": lambda: ledger.revoke(task_id),
            "revoke": lambda: ledger.revoke(task_id, if_running="finish"),
            "expire": lambda: ledger.cancel(task_id, epoch=message.epoch),
            "discard": lambda: ledger.discard(letter),
            "bury_message": lambda: ledger.bury_message(
                task_id, Reason.UNPROCESSABLE, exception="", traceback="", message="raw",
                name=message.task.name, epoch=message.epoch, is_unproved=not message.generation,
            ),
        }  # fmt: skip
        acts[what]()

    def publish(self, task_id: str, attempt: int, **how: Any) -> object:
        """Record a publication, and keep its message."""
        number, epoch = next(self.numbers), self.ledger.senders.new_epoch(attempt)
        task = TaskRef(task_id, "app.work", 1, time_to_run_ms=number % 2 * LOOK_MS)
        how["state"] = self.choice.choice([State.QUEUED, State.WAITING])
        how["due_in_ms"] = 0 if how["state"] is State.WAITING else LOOK_MS
        chance = 1.0 if attempt or "heir" in how else self.choice.random()
        if chance < 0.1:
            how["unique"], how["is_waited"] = "object", chance < 0.05
        elif chance < 0.2:
            how["room"], how["state"] = self.room(), State.QUEUED
            how["queue"] = self.choice.choice(("", "celery"))

        def record() -> object:
            return self.scene.record(task, epoch, **how)

        answer = self.again(record)
        self.ledger.senders.answered(epoch)
        self.calls.append(record)
        if isinstance(answer, answers.Recorded | answers.Standing):
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
        claim = Claim(message.task.id, answer.attempt, worker, token, answer.losses)
        self.claims.append(claim)
        if self.choice.random() < 0.5:
            self.handle(claim, self.choice.choice(WITH_OBJECT))
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
            "replace": lambda: self.replaced(claim, due_in_ms),
            "release": lambda: self.ledger.release(claim, due_in_ms=due_in_ms),
            "bury": lambda: self.scene.bury(claim),
        }
        if is_current or how == "retry":
            # Of a publication that is refused its sender's number is noted.
            ends[how]()
        else:
            self.changes_nothing(ends[how])

    def handle(self, claim: Claim, how: str) -> None:
        """An attempt takes its object, or a place, or leaves it."""
        if how == "free":
            self.scene.locks.free("object", claim)
            return
        queue = self.choice.choice(("", "celery"))
        self.ledger.take_place(self.room(), claim, due_in_ms=LOOK_MS, stands=True, queue=queue)

    def room(self) -> Room:
        """The object, with places of which there are more and less."""
        return Room("object", self.choice.choice((1, 2, 2)))

    def read(self, task_id: str) -> None:
        """Somebody reads a letter, and may die of it, or discards it."""
        letter, reader = self.ledger.dead_letter(task_id), f"reader {next(self.numbers)}"
        if letter is not None:
            self.again(lambda: self.ledger.announce(letter, reader))
            if self.choice.random() < 0.5:
                self.ledger.announce(letter, reader, is_over=True)
            elif self.choice.random() < 0.5:
                self.ledger.discard(task_id)

    def replaced(self, claim: Claim, due_in_ms: int) -> object:
        self.ledger.touch(claim, heir=claim.token)
        return self.ledger.replace(claim, due_in_ms=due_in_ms)

    def replay(self, task_id: str, epoch: str) -> None:
        """Return a dead letter, whose new message may come."""
        answer = self.again(
            lambda: self.ledger.replay(
                TaskRef(task_id, "app.work"), epoch=epoch, message="replayed", due_in_ms=0
            )
        )
        if isinstance(answer, answers.Recorded):
            task = TaskRef(task_id, "app.work", 1)
            self.messages.append(Published(task, epoch, self.ledger.generation))

    def sweep(self) -> None:
        """Look at what is due."""
        for due in self.ledger.due(10)[1]:
            record = self.ledger.find(due.task_id)
            assert record is not None
            if record.state is State.DEAD:
                self.ledger.announce(self.scene.letter(due.task_id))
            elif record.is_called_off:
                if isinstance(self.ledger.let_go(due.task_id), answers.Gone):
                    self.ledger.postpone(due, due_in_ms=LOOK_MS)
            else:
                how = {"places": self.room().places} if record.in_line_of else {}
                self.ledger.resend(due, due_in_ms=LOOK_MS, **how)
                seen = self.scene.seen_due(due.task_id)
                self.choice.choice((self.ledger.resend, self.ledger.postpone))(
                    seen, due_in_ms=LOOK_MS
                )

    def wake(self) -> None:
        """Let out what may go, and leave the rest to a sweep."""
        self.ledger.moments.wake("waker", lease_ms=LOOK_MS, limit=9, due_in_ms=LOOK_MS)
        self.scene.client.delete(self.ledger.keys.begin + "waker")

    def kill(self, worker: str) -> None:
        """A worker is declared dead, what it ran is lost, and another takes its place."""
        scene, name = self.scene, f"worker {next(self.numbers)}"
        scene.kill_worker(worker)
        lease = scene.lease(worker)
        for claim, _ in scene.workers.claims(worker).values():
            scene.lose(claim, max_losses=1, is_taken=True, verdict=lease.verdict)
        assert scene.workers.deregister(worker, in_unacked=0)
        self.workers.remove(worker)
        self.dead.append(worker)
        self.workers.append(name)
        scene.start_worker(name)

    def again(self, call: Callable[[], T]) -> T:
        """Call, and perhaps call again: the answers must be the same."""
        first = call()
        # Of what stands in a line a repeated call is told that it is recorded.
        said = (first, answers.Recorded()) if isinstance(first, answers.Standing) else (first,)
        assert self.choice.random() < 0.7 or call() in said
        return first

    def changes_nothing(self, call: Callable[[], object]) -> None:
        before = self.scene.snapshot()
        call()
        assert self.scene.snapshot() == before


@promise("never-two", "late-changes-nothing")
@pytest.mark.parametrize("seed", range(8))
def test_a_long_walk_keeps_the_promises(scene: Scene, seed: int) -> None:
    walk = Walk(scene, Random(seed), "abcd" if seed % 2 else "aaab")

    for _ in range(500):
        walk.step()

    # The walk has been somewhere.
    assert len(walk.claims) > 9
