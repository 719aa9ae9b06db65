"""Dead letters by group: the index says what the dead letters say, whatever became of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from celery_reliable.model import Cause, Group, Reason, TaskRef
from tests.ledger.scene import LOOK_MS, Published, Scene, open_ledger
from tests.support.waiting import wait_for

Counts = dict[Group, int]
KILLED = Group("lost", "child_lost", "", "app.work")


def fail(scene: Scene, task_id: str, exception: str = "ValueError: no") -> None:
    claim = scene.claim(scene.publish(task_id))
    scene.ledger.bury(claim, Reason.FAILED, exception=exception, traceback="")


def lose(scene: Scene, task_id: str) -> None:
    message = scene.publish(task_id, max_losses=0)
    scene.lose(scene.claim(message))


def failed(type_: str) -> Group:
    return Group("failed", "", type_, "app.work")


def truth(scene: Scene) -> Counts:
    """What the records say that are dead, read by hand; every one of these is of `app.work`."""
    found: Counter[Group] = Counter()
    for name in scene.client.zrange(scene.ledger.keys.dead, 0, -1):
        key = scene.ledger.keys.record("").encode() + name
        record = scene.client.hgetall(key)
        reason = record.get(b"reason", b"").decode()
        if reason == "lost":
            found[KILLED] += 1
        else:
            type_ = record.get(b"exception", b"").decode().split(":")[0]
            found[Group(reason, "", type_, record.get(b"name", b"").decode())] += 1
    return dict(found)


def caught_up(scene: Scene, limit: int = 100_000) -> Counts:
    """What the index says when whoever looks has looked at all."""
    assert scene.ledger.groups.catch_up(limit).is_complete
    return {one.group: one.count for one in scene.ledger.groups.counts()}


@pytest.fixture
def letters(scene: Scene) -> Scene:
    """Six of them, in three groups."""
    for number in range(3):
        fail(scene, f"value-{number}")
    for number in range(2):
        fail(scene, f"key-{number}", "KeyError: 'x: y'")
    lose(scene, "lost-0")
    return scene


def test_deaths_of_one_kind_are_one_group_whatever_the_process(scene: Scene) -> None:
    for number, detail in enumerate(
        ["signal 9 (SIGKILL), pid 1", "signal 9 (SIGKILL), pid 2", "exitcode 3, pid 4"]
    ):
        claim = scene.claim(scene.publish(f"task-{number}", max_losses=0))
        scene.ledger.lose(
            claim, Cause.CHILD_LOST, max_losses=0, due_in_ms=LOOK_MS, is_taken=False, detail=detail
        )

    counts = caught_up(scene)

    assert {group.cause: count for group, count in counts.items()} == {
        "child_lost, SIGKILL": 2,
        "child_lost, exit code 3": 1,
    }


# What becomes of letters, by those who know nothing of groups.


def replay(scene: Scene, task_id: str) -> Published:
    ledger, epoch = scene.ledger, f"0-{task_id}"
    ledger.generation = scene.client.hget(ledger.keys.meta, "generation").decode()
    ledger.replay(TaskRef(task_id, "app.work"), epoch=epoch, message="", due_in_ms=LOOK_MS)
    return Published(TaskRef(task_id, "app.work"), epoch, ledger.generation)


def age_out(scene: Scene, task_id: str) -> None:
    ((_, buried_ms),) = [one for one in scene.ledger.letters_after(None, 100) if one[0] == task_id]
    scene.ledger.discard(task_id, buried_ms=buried_ms)


LEAVING: dict[str, Callable[[Scene, str], Any]] = {
    "replayed": replay,
    "discarded": lambda scene, task_id: scene.ledger.discard(task_id),
    "published anew": lambda scene, task_id: scene.publish(task_id),
    "aged out": age_out,
}


@pytest.mark.parametrize("how", LEAVING)
def test_what_is_no_letter_any_more_leaves_its_group(letters: Scene, how: str) -> None:
    caught_up(letters)

    LEAVING[how](letters, "value-1")
    LEAVING[how](letters, "lost-0")

    counts = caught_up(letters)
    assert counts == truth(letters) == {failed("ValueError"): 2, failed("KeyError"): 2}
    assert letters.ledger.groups.find(KILLED.id) is None


# Bounded, and by anybody.


def test_a_look_at_what_is_up_to_date_reads_no_letter(letters: Scene) -> None:
    (_, last_ms) = letters.ledger.letters_after(None, 6)[5]
    wait_for(lambda: letters.workers.time_ms() > last_ms, 5, "the next ms")
    caught_up(letters)
    letters.client.config_resetstat()

    caught_up(letters)

    calls = letters.client.info("commandstats")
    # But for the clock.
    assert calls["cmdstat_hmget"]["calls"] == calls["cmdstat_time"]["calls"]
    assert "cmdstat_evalsha" not in calls


def test_two_readers_at_once_while_letters_come_and_go(scene: Scene, ledger_url: str) -> None:
    is_over = threading.Event()

    def read() -> None:
        ledger = open_ledger(ledger_url, scene.ledger.namespace)
        while not is_over.is_set():
            ledger.groups.catch_up(7)
            ledger.groups.counts()
        ledger.close()

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(120):
                fail(scene, f"task-{number}", f"Error{number % 3}: x")
                if number % 4 == 3:
                    scene.ledger.discard(f"task-{number - 2}")
                if number % 5 == 4:
                    scene.publish(f"task-{number - 1}")
        finally:
            is_over.set()
        for reader in readers:
            reader.result()

    assert caught_up(scene) == truth(scene)


# Clocks that step, and hands that meddle.


Meddling = Callable[[Scene], Any]
WRONG = f"{failed('OSError').id} %015d %s"


def in_two_groups(scene: Scene) -> None:
    at_ms = int(scene.client.zscore(scene.ledger.keys.dead, "key-0"))
    scene.client.zadd(scene.ledger.keys.grouped, {WRONG % (at_ms, "key-0"): 0})


DAMAGE: dict[str, Meddling] = {
    "both are gone": lambda s: s.client.delete(s.ledger.keys.groups, s.ledger.keys.grouped),
    "a name is gone": lambda s: s.client.hdel(s.ledger.keys.groups, failed("KeyError").id),
    "no members": lambda s: s.client.zadd(
        s.ledger.keys.grouped, {"junk": 0, "added": 0, "~": 0, "": 0, b"\xff\x00 \n": 0}
    ),
    "members of nothing": lambda s: s.client.zadd(
        s.ledger.keys.grouped, {WRONG % (n, f"nobody-{n}"): 0 for n in range(5)}
    ),
    "in two groups": in_two_groups,
    "positions of nowhere": lambda s: s.client.hset(
        s.ledger.keys.groups, mapping={"added": "soon", "checked": "\xff"}
    ),
    "a position too far": lambda s: s.client.hset(
        s.ledger.keys.groups, "added", f"{s.workers.time_ms() - 1} zzz"
    ),
    "a letter by hand": lambda s: s.client.zadd(s.ledger.keys.dead, {"by hand": 5}),
    "an id that is no text": lambda s: s.client.zadd(s.ledger.keys.dead, {b"\xff\xfe \n": 9}),
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("limit", [2, 100_000])
def test_what_somebody_damaged_is_put_right(letters: Scene, how: str, limit: int) -> None:
    caught_up(letters)

    DAMAGE[how](letters)
    fail(letters, "another")

    # A name that is missing shows when the groups are read.
    letters.ledger.groups.counts()
    for _ in range(60):
        state = letters.ledger.groups.catch_up(limit)
        if state.is_complete:
            break
    assert state.is_complete, state
    counts = caught_up(letters)
    assert counts == truth(letters)
    assert sum(counts.values()) == letters.ledger.count_dead() >= 7
