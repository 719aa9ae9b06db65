"""Objects that several tasks may have at once, and the line of those that wait for a place."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from celery_reliable.ledger.answers import (
    Answer,
    InUse,
    NotCurrent,
    Placed,
    Recorded,
    Send,
    Sent,
    Standing,
)
from celery_reliable.model import Claim, ClaimRequest, NextUp, Room, State, TaskRef
from tests.ledger.scene import LOOK_MS, Published, Scene
from tests.support.promises import promise

LINE, QUEUE = "object", "celery"


class Line:
    """The line of one object with places, and who was told to go on."""

    def __init__(self, scene: Scene, places: int = 1) -> None:
        self.scene = scene
        self.places = places
        self.told: list[str] = []
        scene.ledger.on_next = lambda object_key, task_id: self.told.append(task_id)

    def start(self, task_id: str, worker: str = "me") -> Claim:
        return self.scene.claim(self.scene.publish(task_id), worker)

    def take(self, claim: Claim, *, stands: bool = True, queue: str = "") -> Answer:
        return self.scene.ledger.take_place(
            LINE, self.places, claim, due_in_ms=LOOK_MS, stands=stands, queue=queue
        )

    def enter(self, *task_ids: str) -> list[Claim]:
        """Have tasks take a place or stand in the line, in this order."""
        claims = [self.start(task_id) for task_id in task_ids]
        for claim in claims:
            assert isinstance(self.take(claim), Placed | Standing)
        return claims

    def step_up(self, task_id: str) -> Answer:
        record = self.scene.ledger.find(task_id)
        epoch = record.epoch if record is not None else "none"
        return self.scene.ledger.step_up(LINE, self.places, task_id, epoch, due_in_ms=LOOK_MS)

    def hold(self, holder: Claim) -> Claim:
        """An attempt that may put the next one's message into the queue."""
        next_up = NextUp(self.places, QUEUE, LOOK_MS)
        return replace(holder, object_key=LINE, has_line=True, next_up=next_up)

    def in_queue(self) -> list[bytes]:
        found: list[bytes] = self.scene.client.lrange(QUEUE, 0, -1)
        return found

    def let_through(self) -> list[str]:
        """Let those through who were told of; return their ids."""
        told, self.told = self.told, []
        return [one for one in told if isinstance(self.step_up(one), Send)]


@pytest.fixture
def line(scene: Scene) -> Line:
    return Line(scene)


def placed(answer: Answer) -> str:
    """The place that an attempt has."""
    assert isinstance(answer, Placed)
    return answer.object_key


@promise("one-object")
def test_many_at_the_same_moment_take_no_more_than_there_are(scene: Scene) -> None:
    line = Line(scene, 3)
    claims = [line.start(f"task {n}") for n in range(16)]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda claim: line.take(claim, stands=False), claims))

    assert sum(isinstance(one, Placed) for one in answers) == 3


def _cancel(scene: Scene, claim: Claim) -> object:
    scene.lose(claim)
    return scene.ledger.revoke(claim.task_id)


def _discard(scene: Scene, claim: Claim) -> object:
    """A dead letter whose last attempt was stopped late."""
    scene.take(claim, max_losses=0)
    scene.kill_worker(claim.worker)
    return scene.ledger.is_outlived(claim.task_id, claim.worker)


FREEING: dict[str, Callable[[Scene, Claim], object]] = {
    "settle": lambda scene, claim: scene.ledger.settle(claim),
    "bury": lambda scene, claim: scene.bury(claim),
    "lose": lambda scene, claim: scene.lose(claim, max_losses=0),
    "cancel": _cancel,
    "discard": _discard,
    "unlock": lambda scene, claim: scene.locks.free(
        LINE, replace(claim, object_key=LINE, has_line=True)
    ),
}


@promise("line-in-order")
@pytest.mark.parametrize("how", FREEING)
def test_whatever_frees_a_place_has_the_first_of_the_line_go_in_the_same_step(
    line: Line, how: str
) -> None:
    scene = line.scene
    holder, *_ = line.enter("holder", "first", "second")

    FREEING[how](scene, holder)

    assert line.told == ["first"]
    # And if nobody heard that: it is due now, and a pass does the same.
    assert "first" in scene.overdue_ids()
    assert "second" not in scene.overdue_ids()
    assert line.let_through() == ["first"]
    record = scene.record_of("first")
    assert (record.state, record.waiting_for) == (State.QUEUED, "")
    assert line.step_up("second").word == "full"


@promise("line-in-order")
def test_the_line_is_in_the_order_of_publication(line: Line) -> None:
    """Also when those who came first ask last."""
    scene = line.scene
    (holder,) = line.enter("holder")
    names = [f"task {n:02}" for n in range(20)]
    messages = [scene.publish(name) for name in names]
    for message in reversed(messages):
        assert isinstance(line.take(scene.claim(message)), Standing)
    order = []

    for _ in names:
        scene.ledger.settle(holder)
        (name,) = line.let_through()
        holder = scene.claim(messages[names.index(name)])
        assert placed(line.take(holder)) == LINE
        order.append(name)

    assert order == names


@promise("line-in-order")
@pytest.mark.parametrize("later", ["a", "z"])
def test_of_two_that_were_published_in_the_same_moment_one_has_the_free_place(
    line: Line, later: str
) -> None:
    """By two processes, each with its first publication; the second comes as the first is told."""
    scene, keys = line.scene, line.scene.ledger.keys
    holder, _ = line.enter("holder", "m")
    claim = line.start(later)
    first = scene.client.hgetall(keys.record("m"))
    for field in (b"published_ms", b"epoch"):
        scene.client.hset(keys.record(later), field, first[field])
    scene.ledger.settle(holder)
    assert line.told == ["m"]

    answers = [line.take(claim), line.step_up("m")]

    assert sorted(isinstance(one, Placed | Send) for one in answers) == [False, True]


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("is_free", [False, True])
def test_who_has_a_place_keeps_it_when_there_is_one_and_nobody_waits(
    scene: Scene, is_full: bool, is_free: bool
) -> None:
    """The same for a task that is locked as an object of one at a time."""
    line = Line(scene, 3)
    others = [line.start(f"other {n}") for n in range(2)]
    message = scene.publish("task")
    last = scene.claim(message)
    for claim in (*others, last):
        place = placed(line.take(claim))
    scene.lose(last)
    for claim in others if not is_full else ():
        scene.ledger.settle(claim)
    if is_free:
        scene.client.delete(scene.ledger.keys.lock(place))
    again = scene.claim(message)

    held_by = scene.locks.take(LINE, again)

    assert held_by == ("other 0" if is_free and is_full else None)
    # It says so as often as it is asked.
    assert scene.locks.take(LINE, again) == held_by
    for claim in (again, *(others if is_full else ())):
        scene.ledger.settle(claim)
    assert scene.client.keys("*:lock:*") == []


def test_an_object_that_is_kept_is_waited_for_until_then(line: Line) -> None:
    scene = line.scene
    holder, *_ = line.enter("holder", "first", "second")
    scene.ledger.settle(replace(holder, object_key=LINE, has_line=True), keep_ms=5_000)

    due_ms, now_ms = int(scene.seen_due("first").due_ms), scene.workers.time_ms()
    assert now_ms + 4_000 < due_ms <= now_ms + 5_000
    assert line.told == []
    assert line.step_up("first").word == "full"
    third = line.start("third")
    assert isinstance(line.take(third), Standing)
    scene.client.delete(scene.ledger.keys.lock(LINE))
    assert isinstance(line.step_up("first"), Send)


@pytest.mark.parametrize("is_claimed", [True, False])
def test_an_attempt_takes_its_place_in_the_step_that_begins_it(
    line: Line, is_claimed: bool
) -> None:
    scene = line.scene
    message = scene.publish("task")
    request = ClaimRequest(
        message.task, message.epoch, message.generation, worker="me", token="mine", pid=1000
    )
    if not is_claimed:
        scene.claim(message, token="another's")
    before = scene.snapshot()
    place = scene.ledger.step_behind(request, Room(LINE, 1), due_in_ms=LOOK_MS)

    answer = scene.ledger.claim(request, along=place)

    if not is_claimed:
        assert place.answer == NotCurrent()
        assert scene.snapshot() == before
        return
    assert (answer.word, place.answer) == ("claimed", Placed(LINE))
    # It is the attempt's, as if it had asked by its number.
    after = scene.snapshot()
    assert line.take(Claim("task", 1, "me", "mine")) == Placed(LINE)
    assert scene.snapshot() == after


# The one who stands first is sent in the step that frees a place.


def line_of_three(line: Line) -> Claim:
    """Return the attempt that has the object; first, second and third wait, and may be put."""
    (holder,) = line.enter("holder")
    for name in ("first", "second", "third"):
        assert isinstance(line.take(line.start(name), queue=QUEUE), Standing)
    return holder


@pytest.mark.parametrize("why", ["revoked", "moved", "another queue", "places", "a death"])
def test_who_may_not_be_sent_so_is_looked_for_as_ever(line: Line, why: str) -> None:
    scene = line.scene
    holder = line.hold(line_of_three(line))
    key = scene.ledger.keys.record("first")
    if why == "revoked":
        scene.client.hset(key, "revoked", "1")
    elif why == "moved":
        scene.move("0-moved", "first")
    elif why == "another queue":
        scene.client.hset(key, "list", "another")
    elif why == "places":
        holder = replace(holder, next_up=NextUp(2, QUEUE, LOOK_MS))
    else:
        scene.client.hset(key, "suspect", "ran")

    scene.ledger.settle(holder)

    assert line.in_queue() == []
    assert line.told == ["first"]
    assert scene.state("first") == "parked"


def test_who_stands_in_line_again_is_put_into_no_queue_of_before(line: Line) -> None:
    """The worker that has it stand there now sends otherwise."""
    scene = line.scene
    holder = line.start("holder")
    line.take(holder)
    message = scene.publish("first")
    assert isinstance(line.take(scene.claim(message), queue=QUEUE), Standing)
    scene.client.hset(scene.ledger.keys.record("first"), "state", "queued")
    assert isinstance(line.take(scene.claim(message)), Standing)

    scene.ledger.settle(line.hold(holder))

    assert line.in_queue() == []
    assert line.told == ["first"]


def test_who_stands_in_line_after_a_move_is_sent_as_it_says_from_then_on(line: Line) -> None:
    """What was named as its attempt began is in its message, so its retry need not be told."""
    scene = line.scene
    holder = line.start("holder")
    line.take(holder)
    waits = line.start("first")
    scene.move("1-moved", "first")
    assert isinstance(line.take(waits), Standing)
    assert scene.record_of("first").epoch == "1-moved"
    scene.ledger.settle(replace(holder, object_key=LINE, has_line=True))
    assert line.let_through() == ["first"]

    task = TaskRef("first", "app.work")
    runs = scene.claim(Published(task, "1-moved", scene.ledger.generation))
    retry = scene.ledger.senders.new_epoch(runs.attempt)

    assert isinstance(scene.record(task, retry, claim=runs), Recorded)


def test_who_stands_there_without_a_record_keeps_nobody_waiting(line: Line) -> None:
    """Also not for the length of a look: neither who comes, nor who is to be put into the queue."""
    scene = line.scene
    ghosts = {f"ghost {n}": n for n in range(3)}
    waiting = scene.ledger.keys.waiting(LINE)
    scene.client.zadd(waiting, ghosts)

    holder = line.hold(line_of_three(line))

    assert scene.client.zrange(waiting, 0, -1) == [b"first", b"second", b"third"]
    scene.client.zadd(waiting, ghosts)
    scene.ledger.settle(holder)
    assert [scene.state(name) for name in ("first", "second")] == ["queued", "parked"]
    assert len(line.in_queue()) == 1


@pytest.mark.parametrize("queue", ["", QUEUE])
def test_a_publication_that_is_repeated_is_told_the_same(line: Line, queue: str) -> None:
    scene = line.scene
    scene.publish("before any")
    epoch = scene.ledger.senders.new_epoch(0)

    def publish(epoch: str) -> list[type[Answer]]:
        """Publish a task that takes its place at once."""
        answers = scene.ledger.record_for_place(
            TaskRef("task", "app.work"), Room(LINE, 1), epoch=epoch, due_in_ms=LOOK_MS,
            message="its message", queue=queue,
        )  # fmt: skip
        return [type(one) for one in answers]

    once = publish(epoch)

    assert once == [Recorded, Sent if queue else Send]
    assert publish(epoch) == once
    assert len(line.in_queue()) == (1 if queue else 0)
    # One that is refused stands nowhere.
    scene.ledger.senders.answered(epoch)
    assert publish(scene.ledger.senders.new_epoch(0)) == [InUse, NotCurrent]
    assert not scene.client.exists(scene.ledger.keys.waiting(LINE))
