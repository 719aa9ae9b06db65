"""Every state in which a task can be found, and every step that somebody may try on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from celery_reliable.leases import Verdict
from celery_reliable.ledger.answers import Answer, Standing
from celery_reliable.model import Claim, DeadLetter, Rate, Reason, Room, State, StoredResult
from tests.ledger.scene import LOOK_MS, MAX_LOSSES, Published, Scene, attempt_zero

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


def timed(scene: Scene) -> Stage:
    return Stage(scene.publish(state=State.WAITING), attempt_zero())


def due(scene: Scene) -> Stage:
    """Its moment has come, and its message goes into a list."""
    return Stage(scene.publish(state=State.WAITING, due_in_ms=0, queue="celery"), attempt_zero())


def struck(scene: Scene) -> Stage:
    """Parked by a strike."""
    stage = queued(scene)
    scene.ask(stage.message, strikes=(scene.strike(),))
    return stage


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


def take_place(scene: Scene, claim: Claim, *, places: int = 1, **how: Any) -> Answer:
    return scene.ledger.take_place(Room("object", places), claim, due_in_ms=LOOK_MS, **how)


def _behind(scene: Scene, stage: Stage, **how: Any) -> Claim:
    """Return another attempt, which has the object for which this one stands in line."""
    another = scene.claim(scene.publish("another"))
    take_place(scene, another)
    assert isinstance(take_place(scene, stage.mine, stands=True, **how), Standing)
    return another


def standing(scene: Scene) -> Stage:
    """In the line of an object that another task has."""
    stage = running(scene)
    _behind(scene, stage)
    return stage


def let_in(scene: Scene) -> Stage:
    """It has the place that it waited for, and is to be sent."""
    stage = running(scene)
    scene.ledger.settle(_behind(scene, stage))
    return stage


def let_out(scene: Scene) -> Stage:
    """It has the place that it waited for, and its message was put into its list."""
    stage = running(scene)
    scene.ledger.settle(_behind(scene, stage, queue="celery"))
    return stage


def replaced(scene: Scene) -> Stage:
    stage = running(scene)
    scene.ledger.touch(stage.mine, heir=HEIR)
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


def revoked(scene: Scene) -> Stage:
    """Revoked as it ran, and released."""
    stage = running(scene)
    scene.ledger.revoke("task", if_running="finish")
    scene.ledger.release(stage.mine, due_in_ms=LOOK_MS)
    return stage


def read(scene: Scene) -> Stage:
    """A dead letter of which Celery is still to be told, and that somebody has begun to read."""
    stage = running(scene)
    scene.bury(stage.mine, is_owed=True)
    scene.ledger.announce(scene.letter(), "reader")
    return stage


def sealed(scene: Scene) -> Stage:
    """A dead letter that somebody has begun to read while another one read it."""
    stage = read(scene)
    scene.ledger.announce(scene.letter(), "another reader")
    return stage


def dead_stopping(scene: Scene) -> Stage:
    """A dead letter whose last attempt its worker has still to stop."""
    stage = running(scene)
    scene.take(stage.mine, max_losses=0)
    return stage


def _locked(scene: Scene, stage: Stage) -> Stage:
    scene.locks.take("object", stage.mine)
    return stage


def locked(scene: Scene) -> Stage:
    """A unique publication that nobody has claimed."""
    return Stage(scene.publish(unique="object"), attempt_zero())


def locked_running(scene: Scene) -> Stage:
    return _locked(scene, running(scene))


def awaited(scene: Scene) -> Stage:
    """It has its object, and another one waits for that, whose message goes into a list."""
    stage = locked_running(scene)
    another = scene.claim(scene.publish("another"))
    take_place(scene, another, stands=True, queue="celery")
    return stage


def awaited_dead(scene: Scene) -> Stage:
    """The same, and its worker has still to stop it."""
    stage = awaited(scene)
    scene.take(stage.mine, max_losses=0)
    return stage


def outlived(scene: Scene, *, max_losses: int = MAX_LOSSES, is_revoked: bool = False) -> Stage:
    """It has its object, and was taken from a worker that was declared dead since."""
    message = scene.publish()
    stage = _locked(scene, Stage(message, scene.claim(message, "other")))
    scene.take(stage.mine, max_losses=max_losses)
    if is_revoked:
        scene.ledger.revoke("task")
    scene.kill_worker("other")
    return stage


def outlived_off(scene: Scene) -> Stage:
    return outlived(scene, is_revoked=True)


def outlived_dead(scene: Scene) -> Stage:
    return outlived(scene, max_losses=0)


def locked_lost(scene: Scene) -> Stage:
    stage = locked_running(scene)
    scene.lose(stage.mine)
    return stage


def locked_again(scene: Scene) -> Stage:
    """An older attempt has left its lock, and this one has not come to it."""
    message = locked_lost(scene).message
    return Stage(message, scene.claim(message))


def locked_waiting(scene: Scene) -> Stage:
    stage = locked_running(scene)
    scene.ledger.replace(stage.mine, due_in_ms=LOOK_MS)
    return stage


def locked_dead(scene: Scene) -> Stage:
    stage = locked_running(scene)
    scene.take(stage.mine, max_losses=0)
    return stage


def locked_letter(scene: Scene) -> Stage:
    """A dead letter that still notes its object."""
    stage = locked_dead(scene)
    key = scene.ledger.keys.record("task")
    claim = scene.client.hget(key, "claim")
    scene.client.hset(key, "claim", claim.replace(b"\nstopping ", b""))
    return stage


def unnoted(scene: Scene) -> Stage:
    """Its lock is there, and its record does not note that, as an older version left it."""
    stage = locked_running(scene)
    scene.forget_object()
    return stage


STAGES: dict[str, Callable[[Scene], Stage]] = {
    stage.__name__: stage
    for stage in (
        absent, settled, queued, timed, due, struck, running, held, overtaken, lost, suspected,
        stopping, called_off, retried, standing, let_in, let_out, replaced, spent, buried, revoked,
        read, sealed, dead_stopping, locked, locked_running, locked_lost, locked_again,
        locked_waiting, locked_dead, locked_letter, awaited, awaited_dead, outlived, outlived_off,
        outlived_dead, unnoted,
    )
}  # fmt: skip


class Steps:
    """Tries transitions on the task of a stage; a second try is the same again."""

    def __init__(self, scene: Scene, stage: Stage) -> None:
        self.scene = scene
        self.ledger = scene.ledger
        self.message = stage.message
        self.mine = stage.mine
        self.due = scene.seen_due()
        self.strike = scene.strike()
        letter = scene.ledger.dead_letter("task")
        self.buried_ms = letter.buried_ms if letter else 0
        self.letter = letter or DeadLetter("task", "", Reason.LOST, "", "", 1, 0, 0, 0, "")
        scene.client.set(scene.ledger.keys.lock("kept"), "kept:task", ex=3600)

    def take(self, step: str) -> Answer:
        return STEPS[step](self)

    def other(self, **how: Any) -> Answer:
        """Publish another task."""
        return self.scene.record(replace(self.message.task, id="other"), "0-other", **how)


STEPS: dict[str, Callable[[Steps], Answer]] = {
    # Somebody publishes the id once more.
    "record": lambda it: it.scene.record(it.message.task, "0-again"),
    # Likewise, as a unique task, and another one of that object, also after a while.
    "record_unique": lambda it: it.scene.record(it.message.task, "0-again", unique="object"),
    "record_kept": lambda it: it.scene.record(it.message.task, "0-again", unique="kept"),
    "record_other": lambda it: it.other(unique="object"),
    "record_waited": lambda it: it.other(unique="object", is_waited=True),
    # One that takes its place as it is published.
    "record_placed": lambda it: it.other(room=Room("object", 1), queue="celery"),
    # My attempt publishes its own id: a retry.
    "record_as_attempt": lambda it: it.scene.record(it.message.task, "1-retry", claim=it.mine),
    # The last member of my attempt's canvas is published.
    "record_as_heir": lambda it: it.scene.record(it.message.task, "0-heir", heir=HEIR),
    "withdraw": lambda it: it.ledger.withdraw("task", it.message.epoch),
    # The first message is delivered once more.
    "claim": lambda it: it.scene.ask(it.message, token="once more"),
    # Before that, the first of a limited task asks for its moment.
    "reserve": lambda it: it.ledger.moments.wait(
        "task", Rate("app.work", 1_000_000), epoch=it.message.epoch
    ),
    # Or one with an ETA, whose message goes into a list.
    "reserve_eta": lambda it: it.ledger.moments.wait(
        "task", 60, epoch=it.message.epoch, queue="celery"
    ),
    # The strike is over.
    "resume": lambda it: it.ledger.orders.resume(it.strike, by="ann"),
    # Somebody lets out those whose moment has come.
    "wake": lambda it: it.ledger.moments.wake(
        "me", lease_ms=LOOK_MS, limit=10, due_in_ms=RESEND_MS
    ),
    # A message of this id without our header is delivered.
    "claim_foreign": lambda it: it.scene.ask(
        it.scene.foreign(), token="foreign", content="as delivered"
    ),
    # The same at a worker that knows of a strike, which holds.
    "claim_struck": lambda it: it.scene.ask(
        it.message, token="once more", strikes=(it.strike,), queue="celery"
    ),
    # A message of this id without our header is delivered to such a worker.
    "claim_foreign_struck": lambda it: it.scene.ask(
        it.scene.foreign(), token="foreign", content="as delivered", strikes=(it.strike,)
    ),
    # Somebody wants it ended at my worker, who has not revoked it.
    "stop": lambda it: it.ledger.revoke("task", if_running="kill"),
    "touch": lambda it: it.ledger.touch(it.mine, time_to_run_ms=LOOK_MS),
    "settle": lambda it: it.ledger.settle(it.mine),
    # My outcome is not one with the settlement.
    "store": lambda it: it.ledger.store(it.mine, RESULT),
    # That I am retried is stored when the retry is published.
    "store_retry": lambda it: it.ledger.store(it.mine, RESULT, is_retried=True),
    # I have seen a dead letter, and store its failure.
    "store_buried": lambda it: it.ledger.store(it.letter, RESULT),
    "replace": lambda it: it.ledger.replace(it.mine, due_in_ms=LOOK_MS),
    "lose": lambda it: it.scene.lose(it.mine),
    # As `lose`, with nothing left of the budget.
    "lose_beyond": lambda it: it.scene.lose(it.mine, max_losses=0),
    "release": lambda it: it.ledger.release(it.mine, due_in_ms=LOOK_MS),
    "bury": lambda it: it.scene.bury(it.mine),
    # As `bury`, by who could not store the failure.
    "bury_owed": lambda it: it.ledger.bury(
        it.mine, Reason.TIME_LIMIT, exception="too long", traceback="", is_owed=True
    ),
    # The first message is delivered to a worker that cannot run it.
    "bury_message": lambda it: it.scene.bury_message(it.message.epoch),
    # A message of this id without our header is delivered to a worker that cannot run it.
    "bury_foreign": lambda it: it.scene.bury_message("", is_unproved=True),
    # A revocation: whichever publication is current.
    "cancel": lambda it: it.ledger.revoke("task"),
    # A revocation, which what runs is to remember.
    "revoke": lambda it: it.ledger.revoke("task", if_running="finish"),
    # The first message is found to have expired.
    "cancel_first": lambda it: it.ledger.cancel("task", epoch=it.message.epoch),
    "replay": lambda it: it.scene.replay(),
    "discard": lambda it: it.ledger.discard("task", buried_ms=it.buried_ms),
    # As `discard`, by who keeps so many of them.
    "discard_surplus": lambda it: it.ledger.discard("task", is_surplus=True),
    "announce": lambda it: it.ledger.announce(it.letter),
    # Somebody is about to read the letter, and has read it.
    "read": lambda it: it.ledger.announce(it.letter, "reader"),
    "read_over": lambda it: it.ledger.announce(it.letter, "reader", is_over=True),
    "resend": lambda it: it.ledger.resend(it.due, due_in_ms=RESEND_MS),
    # There are two places by now of the object in whose line it stands; or it has expired there.
    "resend_in": lambda it: it.ledger.resend(it.due, due_in_ms=RESEND_MS, places=2),
    "resend_out": lambda it: it.ledger.resend(it.due, due_in_ms=RESEND_MS, is_expired=True),
    # The first message is where nobody may run it.
    "divert": lambda it: it.ledger.named.divert("task", it.message.epoch),
    # No worker that may run it is alive.
    "park": lambda it: it.ledger.named.wait(it.due, "{}", due_in_ms=RESEND_MS),
    # One is, and the task does not wait for it.
    "unpark": lambda it: it.ledger.named.divert_all([("task", "")], is_waiting=True)[0],
    # My attempt takes a place, where there is one.
    "take_place": lambda it: take_place(it.scene, it.mine, places=2),
    # My attempt stands in the line of an object that is kept for a while.
    "stand": lambda it: it.ledger.take_place(
        Room("kept", 1), it.mine, due_in_ms=LOOK_MS, stands=True
    ),
    "postpone": lambda it: it.ledger.postpone(it.due, due_in_ms=RESEND_MS),
    # My worker has stopped what was taken from it.
    "acknowledge": lambda it: it.scene.workers.acknowledge(it.mine),
    "let_go": lambda it: it.ledger.let_go("task"),
    # My outcome is about to be stored.
    "conclude": lambda it: it.ledger.touch(it.mine, is_concluding=True),
    # A canvas is about to be published in my attempt's place.
    "bequeath": lambda it: it.ledger.touch(it.mine, heir=HEIR),
    # My attempt takes an object.
    "lock": lambda it: said(it.scene.locks.take("object", it.mine)),
    "free": lambda it: it.ledger.free_place("object", it.mine),
    "settle_and_keep": lambda it: it.ledger.settle(it.mine, keep_ms=LOOK_MS),
}


@dataclass(frozen=True)
class Said:
    """What is told otherwise than by an answer."""

    word: str


def said(found: object) -> Any:
    return Said(str(found))
