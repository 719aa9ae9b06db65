"""Every state in which a task can be found, and every step that somebody may try on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from celery_reliable.leases import Verdict
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.objects import Standing
from celery_reliable.model import Claim, DeadLetter, Rate, Reason, Record, State, StoredResult
from tests.ledger.scene import LOOK_MS, Published, Scene, attempt_zero

RESEND_MS = 2 * LOOK_MS
#: What names the canvas of an attempt that was replaced.
HEIR = "the canvas"
RESULT = StoredResult(
    "celery-task-meta-task", '{"status": "FAILURE"}', '{"status": "SUCCESS"', 60, 0
)


@dataclass(frozen=True)
class Stage:
    """A task in a state, the first message of it, and the attempt that I had of it or never had."""

    message: Published
    mine: Claim


def absent(scene: Scene) -> Stage:
    # Another task's record shows that the message is of the current generation.
    other = scene.publish("another")
    return Stage(Published(scene.foreign().task, "0-1", other.generation), attempt_zero())


def settled(scene: Scene) -> Stage:
    stage = running(scene)
    scene.ledger.settle(stage.mine)
    return stage


def queued(scene: Scene) -> Stage:
    return Stage(scene.publish(), attempt_zero())


def parked(scene: Scene) -> Stage:
    return Stage(scene.publish(state=State.PARKED), attempt_zero())


def running(scene: Scene) -> Stage:
    message = scene.publish()
    return Stage(message, scene.claim(message))


def held(scene: Scene) -> Stage:
    message = scene.publish()
    scene.claim(message, "other")
    return Stage(message, attempt_zero())


def lost(scene: Scene) -> Stage:
    stage = running(scene)
    scene.lose(stage.mine)
    return stage


def suspected(scene: Scene) -> Stage:
    """Lost with another in two workers that died; I run the other."""
    message, another = scene.publish(), scene.publish("another")
    for worker in ("victim", "other victim"):
        scene.start_worker(worker)
        mine = scene.claim(message, worker)
        scene.lose(mine, verdict=Verdict("nobody"))
        scene.lose(scene.claim(another, worker), verdict=Verdict("nobody"))
    scene.claim(another)
    return Stage(message, mine)


def stopping(scene: Scene) -> Stage:
    """Taken as stuck from a worker that lives and has not yet said that it stopped it."""
    stage = running(scene)
    scene.take(stage.mine)
    return stage


def called_off(scene: Scene) -> Stage:
    """Revoked while its worker has not yet said that it stopped what was taken from it."""
    stage = stopping(scene)
    scene.ledger.revoke("task")
    return stage


def overtaken(scene: Scene) -> Stage:
    stage = lost(scene)
    scene.claim(stage.message, "other")
    return stage


def retried(scene: Scene) -> Stage:
    stage = running(scene)
    scene.publish(claim=stage.mine)
    return stage


def standing(scene: Scene) -> Stage:
    """In the line of an object that another task has."""
    stage = running(scene)
    take_place(scene, scene.claim(scene.publish("another")))
    assert isinstance(take_place(scene, stage.mine, stands=True), Standing)
    return stage


def take_place(scene: Scene, claim: Claim, *, places: int = 1, stands: bool = False) -> Answer:
    return scene.ledger.take_place("object", places, claim, due_in_ms=LOOK_MS, stands=stands)


def waiting(scene: Scene) -> Stage:
    stage = running(scene)
    scene.ledger.bequeath(stage.mine, heir=HEIR)
    scene.ledger.replace(stage.mine, due_in_ms=LOOK_MS)
    return stage


def spent(scene: Scene) -> Stage:
    stage = running(scene)
    scene.lose(stage.mine, max_losses=0)
    return stage


def buried(scene: Scene) -> Stage:
    stage = running(scene)
    scene.bury(stage.mine)
    return stage


STAGES: dict[str, Callable[[Scene], Stage]] = {
    stage.__name__: stage
    for stage in (
        absent,
        settled,
        queued,
        parked,
        running,
        held,
        overtaken,
        lost,
        suspected,
        stopping,
        called_off,
        retried,
        standing,
        waiting,
        spent,
        buried,
    )
}


class Steps:
    """One try of each transition on the task of a stage; a second call is the same try again."""

    def __init__(self, scene: Scene, stage: Stage) -> None:
        self._scene = scene
        self._ledger = scene.ledger
        self._message = stage.message
        self._mine = stage.mine
        self._due = scene.seen_due()
        self._strike = scene.strike()
        letter = scene.ledger.dead_letter("task")
        self._buried_ms = letter.buried_ms if letter else 0
        self._letter = letter or DeadLetter("task", "", Reason.LOST, "", "", 1, 0, 0, 0, "")
        scene.client.set(scene.ledger.keys.lock("kept"), "kept:another", ex=3600)

    def record(self) -> Answer:
        """Somebody publishes the id once more."""
        return self._scene.record(self._message.task, "0-again")

    def record_as_attempt(self) -> Answer:
        """My attempt publishes its own id: a retry."""
        return self._scene.record(self._message.task, "1-retry", claim=self._mine)

    def record_as_heir(self) -> Answer:
        """The last member of my attempt's canvas is published."""
        return self._scene.record(self._message.task, "0-heir", heir=HEIR)

    def withdraw(self) -> Answer:
        return self._ledger.withdraw("task", self._message.epoch)

    def claim(self) -> Answer:
        """The first message is delivered once more."""
        return self._scene.ask(self._message, token="once more")

    def reserve(self) -> Answer:
        """Before that, the first of a limited task asks for its moment."""
        return self._ledger.paces.reserve(
            "task", "app.work", Rate("app.work", 1_000_000), epoch=self._message.epoch
        )

    def claim_foreign(self) -> Answer:
        """A message of this id without our header is delivered."""
        return self._scene.ask(self._scene.foreign(), token="foreign", content="as delivered")

    def claim_struck(self) -> Answer:
        """The same at a worker that knows of a strike, which holds."""
        return self._scene.ask(self._message, token="once more", strikes=(self._strike,))

    def claim_foreign_struck(self) -> Answer:
        """A message of this id without our header is delivered to such a worker."""
        return self._scene.ask(
            self._scene.foreign(),
            token="foreign",
            content="as delivered",
            strikes=(self._strike,),
        )

    def stop(self) -> Answer:
        """Somebody wants it ended at my worker, who has not revoked it."""
        return self._ledger.orders.stop("task", "me", "kill")

    def touch(self) -> Answer:
        return self._ledger.touch(self._mine, time_to_run_ms=LOOK_MS)

    def settle(self) -> Answer:
        return self._ledger.settle(self._mine)

    def store(self) -> Answer:
        """My outcome is not one with the settlement."""
        return self._ledger.store(self._mine, RESULT)

    def store_retry(self) -> Answer:
        """That I am retried is stored when the retry is published."""
        return self._ledger.store(self._mine, RESULT, is_retried=True)

    def store_buried(self) -> Answer:
        """I have seen a dead letter, and store its failure."""
        return self._ledger.store_buried(self._letter, RESULT)

    def replace(self) -> Answer:
        return self._ledger.replace(self._mine, due_in_ms=LOOK_MS)

    def lose(self) -> Answer:
        return self._scene.lose(self._mine)

    def lose_beyond(self) -> Answer:
        """As `lose`, with nothing left of the budget."""
        return self._scene.lose(self._mine, max_losses=0)

    def release(self) -> Answer:
        return self._ledger.release(self._mine, due_in_ms=LOOK_MS)

    def open(self) -> Answer:
        """I am about to open the first message, which came back."""
        return self._scene.workers.open(
            "me", "came back", "task", self._message.epoch, max_losses=9, patience_seconds=1
        )

    def blame(self) -> Answer:
        """Somebody died as he opened the first message."""
        return self._scene.blame(self._message.epoch, max_losses=9)

    def bury(self) -> Answer:
        return self._scene.bury(self._mine)

    def bury_message(self) -> Answer:
        """The first message is delivered to a worker that cannot run it."""
        return self._scene.bury_message(self._message.epoch)

    def bury_foreign(self) -> Answer:
        """A message of this id without our header is delivered to a worker that cannot run it."""
        return self._scene.bury_message("", is_unproved=True)

    def cancel(self) -> Answer:
        """A revocation: whichever publication is current."""
        return self._ledger.revoke("task")

    def revoke(self) -> Answer:
        """A revocation, which what runs is to remember."""
        return self._ledger.revoke("task", is_noted=True)

    def cancel_first(self) -> Answer:
        """The first message is found to have expired."""
        return self._ledger.cancel("task", epoch=self._message.epoch)

    def replay(self) -> Answer:
        return self._ledger.replay("task", epoch="1-replay", message="replayed", due_in_ms=LOOK_MS)

    def discard(self) -> Answer:
        return self._ledger.discard("task", buried_ms=self._buried_ms)

    def announce(self) -> Answer:
        return self._ledger.announced("task", self._buried_ms)

    def resend(self) -> Answer:
        return self._ledger.resend(self._due, due_in_ms=RESEND_MS)

    def divert(self) -> Answer:
        """The first message is where nobody may run it."""
        return self._ledger.named.divert("task", self._message.epoch)

    def park(self) -> Answer:
        """No worker that may run it is alive."""
        return self._ledger.named.park(self._due, "{}", due_in_ms=RESEND_MS)

    def move(self) -> Answer:
        """Other workers are to run what was seen to wait."""
        seen = Record("task", State.QUEUED, epoch=self._message.epoch)
        return self._move(seen, is_stopped=False)

    def move_away(self) -> Answer:
        """Other workers are to run what I run."""
        mine = self._mine
        seen = Record(
            "task",
            State.RUNNING,
            epoch=self._message.epoch,
            attempt=mine.attempt,
            owner=mine.worker,
            token=mine.token,
        )
        return self._move(seen, is_stopped=True)

    def _move(self, seen: Record, *, is_stopped: bool) -> Answer:
        return self._scene.move("0-moved", seen=seen, named="{}", is_stopped=is_stopped)

    def wake(self) -> Answer:
        """One is, and the task does not wait for it."""
        return self._ledger.named.wake_all(["task"])[0]

    def take_place(self) -> Answer:
        """My attempt takes a place, where there is one."""
        return take_place(self._scene, self._mine, places=2)

    def stand(self) -> Answer:
        """My attempt stands in the line of an object that is kept for a while."""
        return self._ledger.take_place("kept", 1, self._mine, due_in_ms=LOOK_MS, stands=True)

    def step_up(self) -> Answer:
        """There is a place, and somebody has the task take it."""
        return self._ledger.step_up("object", 2, "task", self._message.epoch, due_in_ms=LOOK_MS)

    def postpone(self) -> Answer:
        return self._ledger.postpone(self._due, due_in_ms=RESEND_MS)
