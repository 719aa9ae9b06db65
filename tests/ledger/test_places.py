"""Objects that several tasks may have at once, and the line of those that wait for a place."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from celery_reliable.ledger.answers import (
    Answer,
    Cancelled,
    Full,
    InUse,
    NotCurrent,
    Placed,
    Recorded,
    Send,
    Settled,
    Standing,
)
from celery_reliable.model import Claim, ClaimRequest, Room, TaskRef
from tests.ledger.scene import ABSENT, LOOK_MS, Published, Scene
from tests.support.promises import promise

LINE, QUEUE = "object", "celery"


class Line:
    """The line of one object with places."""

    def __init__(self, scene: Scene, places: int = 1) -> None:
        self.scene = scene
        self.places = places

    @property
    def room(self) -> Room:
        return Room(LINE, self.places)

    def start(self, task_id: str, worker: str = "me") -> Claim:
        return self.scene.claim(self.scene.publish(task_id), worker)

    def take(self, claim: Claim, *, stands: bool = True, queue: str = QUEUE) -> Answer:
        return self.scene.ledger.take_place(
            self.room, claim, due_in_ms=LOOK_MS, stands=stands, queue=queue
        )

    def enter(self, *task_ids: str) -> list[Claim]:
        """Have tasks take a place or stand in the line, in this order."""
        claims = [self.start(task_id) for task_id in task_ids]
        for claim in claims:
            assert isinstance(self.take(claim), Placed | Standing)
        return claims

    def publish(self, task_id: str, epoch: str = "", *, queue: str = QUEUE) -> Answer:
        """Publish a task that takes its place at once."""
        epoch = epoch or self.scene.ledger.senders.new_epoch(0)
        answer = self.scene.record(TaskRef(task_id, "app.work"), epoch, room=self.room, queue=queue)
        self.scene.ledger.senders.answered(epoch)
        return answer

    def look(self, task_id: str, **how: int | bool) -> Answer:
        """A pass has a look at a task that is due."""
        return self.scene.ledger.resend(
            self.scene.seen_due(task_id),
            due_in_ms=LOOK_MS,
            **how,  # type: ignore[arg-type]
        )

    def in_queue(self) -> list[str]:
        """Whose messages are in the queue, the first of them first; "" of who has ended."""
        keys = self.scene.ledger.keys
        found = [one.decode() for one in self.scene.client.lrange(QUEUE, 0, -1)][::-1]
        tasks = {
            self.scene.client.hget(key, "message").decode(): key.decode().partition("task:")[2]
            for key in self.scene.client.keys(keys.record("*"))
        }
        return [tasks.get(one, "") for one in found]

    def holders(self) -> list[str]:
        """Who has the places."""
        found = self.scene.client.keys(self.scene.ledger.keys.lock("*"))
        return sorted(self.scene.client.get(key).decode().partition(":")[2] for key in found)

    def looked_at_in_ms(self, task_id: str) -> float:
        """In how many ms somebody looks at a task."""
        return float(self.scene.seen_due(task_id).due_ms) - self.scene.workers.time_ms()


@pytest.fixture
def line(scene: Scene) -> Line:
    scene.client.delete(QUEUE)
    return Line(scene)


@promise("one-object")
def test_many_at_the_same_moment_take_no_more_than_there_are(scene: Scene) -> None:
    line = Line(scene, 3)
    # One of the locks is there, of a task that is over, and all of them see that.
    scene.client.set(scene.ledger.keys.lock(LINE), "1:over")
    claims = [line.start(f"task {n}") for n in range(16)]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda claim: line.take(claim, stands=False), claims))

    assert sum(isinstance(one, Placed) for one in answers) == 3


DOES: dict[str, Callable[[Scene, Claim], object]] = {
    "settle": lambda scene, claim: scene.ledger.settle(claim),
    "bury": lambda scene, claim: scene.bury(claim),
    "lose": lambda scene, claim: scene.lose(claim),
    "lose for good": lambda scene, claim: scene.lose(claim, max_losses=0),
    "take": lambda scene, claim: scene.take(claim),
    "take for good": lambda scene, claim: scene.take(claim, max_losses=0),
    "acknowledge": lambda scene, claim: scene.workers.acknowledge(claim),
    "kill": lambda scene, claim: scene.kill_worker(claim.worker),
    "revoke": lambda scene, claim: scene.ledger.revoke(claim.task_id),
    "discard": lambda scene, claim: scene.ledger.discard(claim.task_id),
    "let go": lambda scene, claim: scene.ledger.let_go(claim.task_id),
    "retry": lambda scene, claim: scene.publish(claim.task_id, claim=claim),
    "free": lambda scene, claim: scene.ledger.free_place(LINE, claim),
}
#: What frees a place, by the last step; and what does not, as the attempt has to be stopped.
FREEING = (
    "settle", "bury", "lose for good", "lose, revoke", "take for good, acknowledge",
    "take for good, kill, discard", "take, revoke, kill, let go", "retry, free",
)  # fmt: skip
STOPPED = ("take for good", "take, revoke", "take for good, discard")


def do(scene: Scene, claim: Claim, steps: str) -> None:
    for step in steps.split(", "):
        DOES[step](scene, claim)


@promise("line-in-order")
@pytest.mark.parametrize("queue", [QUEUE, ""])
@pytest.mark.parametrize("how", FREEING)
def test_whatever_frees_a_place_lets_in_the_first_of_the_line_in_the_same_step(
    line: Line, how: str, queue: str
) -> None:
    """Its message is put into its list, or the waker is told to send it at once."""
    scene = line.scene
    (holder,) = line.enter("task")
    for name in ("first", "second"):
        line.take(line.start(name, "other"), queue=queue)

    do(scene, holder, how)

    assert line.holders() == ["first"]
    if queue:
        assert (scene.state("first"), line.in_queue()) == ("queued", ["first"])
    else:
        assert line.in_queue() == []
        woken = scene.ledger.moments.wake("me", lease_ms=LOOK_MS, limit=10, due_in_ms=LOOK_MS)
        assert [woken.ids_and_times[0], scene.seen_due("first").task_id] == ["first"] * 2
        assert isinstance(line.look("first"), Send)
    assert scene.record_of("first").waiting_for == ""
    # Who is the first from then on is looked at soon.
    assert scene.state("second") == "waiting"
    assert line.looked_at_in_ms("second") <= LOOK_MS
    assert scene.index_faults() == []


@promise("line-in-order")
@pytest.mark.parametrize("is_free", [False, True])
@pytest.mark.parametrize("how", ["cancel", "withdraw", "resend"])
def test_who_leaves_the_line_as_the_first_has_the_next_looked_at(
    line: Line, how: str, is_free: bool
) -> None:
    """Soon; or at once, where a place is free by now that nobody has told of."""
    scene = line.scene
    line.enter("holder")
    for name in ("first", "second"):
        assert isinstance(line.publish(name), Standing)
    assert line.looked_at_in_ms("second") > 2 * LOOK_MS
    if is_free:
        scene.client.delete(scene.ledger.keys.lock(LINE))

    if how == "cancel":
        scene.ledger.revoke("first")
    elif how == "withdraw":
        scene.ledger.withdraw("first", scene.record_of("first").epoch)
    else:
        # It has expired, and a worker says so.
        assert isinstance(line.look("first", is_expired=True), Send)

    assert scene.state("first") == ("queued" if how == "resend" else ABSENT)
    assert line.in_queue() == (["second"] if is_free else [])
    assert line.holders() == (["second"] if is_free else ["holder"])
    assert line.looked_at_in_ms("second") <= LOOK_MS


def test_a_place_that_was_given_and_not_taken_goes_on_to_the_next(line: Line) -> None:
    """Its task was called off, or its publication taken back, before anybody had claimed it."""
    scene = line.scene
    assert line.publish("holder") == Recorded()
    names = ("first", "second", "third")
    assert [line.publish(name) for name in names] == [Standing("holder"), *[Standing("first")] * 2]
    assert scene.ledger.withdraw("holder", scene.record_of("holder").epoch) == Cancelled()

    scene.ledger.revoke("first")

    assert line.holders() == ["second"]
    assert line.in_queue() == ["", "", "second"]


@promise("one-object")
@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize("how", STOPPED)
def test_an_attempt_that_is_to_be_stopped_keeps_its_place_until_it_is_or_its_worker_is_dead(
    line: Line, how: str, is_dead: bool
) -> None:
    scene = line.scene
    (holder,) = line.enter("holder")
    line.take(line.start("first", "other"))
    do(scene, holder, how)

    assert line.look("first") == Standing("")
    assert line.take(line.start("another", "other"), stands=False) == Full("first")
    assert line.holders() == ["holder"]

    if is_dead:
        scene.kill_worker("me")
        # Nobody has to say so: who stands there first is looked at.
        assert line.look("first") == Standing("")
    else:
        scene.workers.acknowledge(holder)
        if how != "take for good":
            assert scene.overdue_ids() == ["holder"]
            scene.ledger.let_go("holder")
    assert line.holders() == ["first"]
    assert line.in_queue() == ["first"]


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
        order += line.in_queue()
        scene.client.delete(QUEUE)
        holder = scene.claim(messages[names.index(order[-1])])
        assert line.take(holder) == Placed(LINE)

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
    # It was freed without a step that tells.
    scene.client.delete(keys.lock(LINE))

    answers = [line.take(claim, stands=False), line.look("m")]

    assert isinstance(answers[0], Placed) == (later == "a")
    assert line.holders() == ["a" if later == "a" else "m"]
    scene.ledger.settle(holder)


def test_a_place_of_ones_own_is_taken_whoever_waits_for_it(line: Line) -> None:
    """A canvas's last member has the id, and its record notes no place."""
    scene = line.scene
    (host,) = line.enter("host")
    line.take(line.start("first"))
    scene.ledger.touch(host, heir="heir")
    epoch = scene.ledger.senders.new_epoch(0)
    scene.record(TaskRef("host", "app.work"), epoch, heir="heir")
    member = scene.claim(Published(TaskRef("host", "app.work"), epoch, scene.ledger.generation))

    assert line.take(member) == Placed(LINE)

    scene.ledger.settle(member)
    assert line.holders() == ["first"]


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
        answer = line.take(claim)
        assert isinstance(answer, Placed)
    scene.lose(last)
    for claim in others if not is_full else ():
        scene.ledger.settle(claim)
    if is_free:
        scene.client.delete(scene.ledger.keys.lock(answer.object_key))
    again = scene.claim(message)

    held_by = scene.locks.take(LINE, again)

    assert held_by == ("other 0" if is_free and is_full else None)
    # It says so as often as it is asked.
    assert scene.locks.take(LINE, again) == held_by
    for claim in (again, *(others if is_full else ())):
        scene.ledger.settle(claim)
    assert scene.client.keys("*:lock:*") == []


@pytest.mark.parametrize("left", [LOOK_MS // 2, 100 * LOOK_MS])
def test_an_object_that_is_kept_is_waited_for_until_then(line: Line, left: int) -> None:
    scene = line.scene
    holder, *_ = line.enter("holder", "first", "second")
    scene.ledger.settle(holder, keep_ms=left)

    soon = min(left, LOOK_MS)
    assert soon - 1_000 < line.looked_at_in_ms("first") <= soon
    assert isinstance(line.take(line.start("third")), Standing)
    assert line.look("first") == Standing("")
    assert soon - 1_000 < line.looked_at_in_ms("first") <= soon
    scene.ledger.revoke("first")
    assert line.looked_at_in_ms("second") <= soon
    scene.client.delete(scene.ledger.keys.lock(LINE))
    assert line.look("second") == Standing("third")
    assert line.in_queue() == ["second"]


def test_who_waits_hears_how_many_places_there_are_by_now(line: Line) -> None:
    """From whoever knows the task as it is: a pass, an attempt that begins, or one that ends."""
    scene = line.scene
    holder, *_ = line.enter("holder", "first", "second", "third", "fourth", "fifth", "sixth")

    assert line.look("first", places=2) == Standing("second")
    assert line.holders() == ["first", "holder"]
    line.places = 3
    assert line.take(line.start("late")) == Standing("third")
    assert line.holders() == ["first", "holder", "second"]
    scene.ledger.settle(replace(holder, places=1))
    assert line.holders() == ["first", "second", "third"]
    # The places beyond those that there are go to nobody, whoever frees them.
    for task_id in ("first", "second"):
        message = scene.record_of(task_id).epoch, scene.ledger.generation
        scene.ledger.settle(scene.claim(Published(TaskRef(task_id, "app.work"), *message)))
    assert line.holders() == ["third"]


def test_a_call_that_says_for_itself_how_many_places_there_are_is_not_told(line: Line) -> None:
    scene = line.scene
    (holder,) = line.enter("holder")
    own = Room(LINE, 1, is_own=True)
    scene.ledger.take_place(own, line.start("own"), due_in_ms=LOOK_MS, stands=True, queue=QUEUE)
    line.enter("behind")

    line.look("own", places=2)
    assert line.holders() == ["holder"]
    scene.ledger.settle(replace(holder, places=2))
    assert line.holders() == ["behind", "own"]


def test_who_is_not_in_its_line_any_more_is_put_back_when_it_is_looked_at(line: Line) -> None:
    (holder, *_) = line.enter("holder", "first")
    line.scene.client.delete(line.scene.ledger.keys.waiting(f"object {LINE}"))
    line.scene.ledger.settle(holder)
    line.look("first")
    assert (line.holders(), line.in_queue()) == (["first"], ["first"])


@pytest.mark.untraced
def test_a_list_that_is_none_costs_nobody_else(line: Line) -> None:
    (holder, *_) = line.enter("holder", "first")
    line.scene.client.set(QUEUE, "somebody's own")
    assert isinstance(line.scene.ledger.settle(holder), Settled)

    assert (line.holders(), line.scene.overdue_ids()) == (["first"], ["first"])
    assert line.scene.record_of("first").is_unsent


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
    place = scene.ledger.step_behind(request, line.room, due_in_ms=LOOK_MS)

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


def test_who_may_not_be_sent_as_it_is_has_the_place_and_is_sent_by_the_waker(line: Line) -> None:
    scene = line.scene
    holder, *_ = line.enter("holder", "first", "second")
    # Its queue is on another server.
    scene.client.hdel(scene.ledger.keys.record("first"), "list")

    scene.ledger.settle(holder)

    assert (line.in_queue(), line.holders()) == ([], ["first"])
    assert scene.state("first") == "waiting"
    assert "first" in scene.overdue_ids()
    assert isinstance(line.look("first"), Send)


def test_who_was_revoked_is_passed_over_and_looked_at(line: Line) -> None:
    """It was revoked as it ran, and stands there all the same."""
    scene = line.scene
    (holder,) = line.enter("holder")
    first = line.start("first")
    scene.ledger.revoke("first", if_running="finish")
    assert isinstance(line.take(first), Standing)
    assert scene.overdue_ids() == ["first"]
    scene.ledger.postpone(scene.seen_due("first"), due_in_ms=LOOK_MS)
    line.enter("second")

    scene.ledger.settle(holder)

    assert (line.in_queue(), line.holders()) == (["second"], ["second"])
    assert scene.overdue_ids() == ["first"]


def test_who_stands_there_and_waits_for_something_else_keeps_nobody_waiting(line: Line) -> None:
    """As a line may say, of which the server has lost something; neither who comes, nor who waits
    there. And nothing becomes of them.
    """
    scene = line.scene
    (runs,) = line.enter("runs")
    scene.ledger.free_place(LINE, runs)
    scene.ledger.revoke("runs", if_running="finish")
    scene.publish("queued")
    ghosts = {"ghost": 0, "runs": 1, "queued": 2}
    waiting = scene.ledger.keys.waiting(f"object {LINE}")
    scene.client.zadd(waiting, ghosts)
    before = [scene.seen_due(one) for one in ghosts]

    holder, *_ = line.enter("holder", "first", "second")

    assert scene.client.zrange(waiting, 0, -1) == [b"first", b"second"]
    scene.client.zadd(waiting, ghosts)
    scene.ledger.settle(holder)
    assert [scene.state(name) for name in ("first", "second")] == ["queued", "waiting"]
    assert line.in_queue() == ["first"]
    assert [scene.seen_due(one) for one in ghosts] == before


@pytest.mark.parametrize("queue", ["", QUEUE])
def test_a_publication_that_is_repeated_is_told_the_same(line: Line, queue: str) -> None:
    scene = line.scene
    scene.publish("before any")
    epoch = scene.ledger.senders.new_epoch(0)

    once = line.publish("task", epoch, queue=queue)

    assert once == Recorded()
    assert line.publish("task", epoch, queue=queue) == once
    assert line.in_queue() == (["task"] if queue else [])
    # One that is refused stands nowhere.
    assert isinstance(line.publish("task", queue=queue), InUse)
    assert not scene.client.exists(scene.ledger.keys.waiting(f"object {LINE}"))
