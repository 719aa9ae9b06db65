"""The soak's plan, its table, and its oracle: whatever the table does not allow is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from docutils import nodes

from celery_reliable.model import StoredResult
from proof.checker import FAULTS as CHECKED
from proof.leftovers import LEDGER
from proof.soak.deaths import Death
from proof.soak.faults import Happened
from proof.soak.history import History, history_in, strays
from proof.soak.oracle import judge, unexplained
from proof.soak.plan import worlds
from proof.soak.table import FAULTS, LOSES_DATA, ONE, SENTINEL, STRAY, of_set_up
from tests.docs.blocks import ROOT, doctree
from tests.ledger.scene import Scene, open_ledger
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

Row = dict[str, Any]

#: When what was written is lost, in the worlds of this module.
SINCE, UNTIL = 10.0, 12.0
WITHIN, BEFORE, AFTER = 11.0, 5.0, 20.0
LOCK = f"{LEDGER}lock:locked:row"


def row(kind: str, at: float, task: str = "", **fields: Any) -> Row:
    return {"kind": kind, "at": at * 1e6, **({"task": task} if task else {}), **fields}


def published(task: str, at: float) -> list[Row]:
    return [row("publish", at, task), row("published", at, task)]


def settled(task: str, at: float) -> list[Row]:
    return [row("settled", at, task, state="SUCCESS", by=f"{at}")]


def ran(
    task: str, begin: float, end: float | None, attempt: int = 1, worker: str = "one", **other: Any
) -> list[Row]:
    run = f"{task} {begin} {worker}"
    begun = row("begin", begin, task, run=run, attempt=attempt, worker=f"{worker}@host", **other)
    return [begun, *([row("end", end, run=run)] if end is not None else [])]


def well(task: str = "well") -> list[Row]:
    return [*published(task, 1), *ran(task, 2, 3), *settled(task, 3.1)]


def twice(at: float) -> list[Row]:
    """Settled then, and once more."""
    return [*published("a", 1), *ran("a", 4.5, 4.6), *settled("a", at), *settled("a", 30)]


def again(at: float) -> list[Row]:
    """Settled then, and it runs again."""
    return [*published("a", 1), *ran("a", 4.5, 4.6), *settled("a", at), *ran("a", 30, 31, 2)]


def same_number(at: float) -> list[Row]:
    """Begins then, and once more by the same number."""
    return [*published("a", 1), *ran("a", at, None), *ran("a", 30, 31), *settled("a", 32)]


def no_body(at: float) -> list[Row]:
    """The headers end then, and the body never begins."""
    rows = [row("chord", 0.5, body="body", headers=["a", "b"])]
    for task in ("a", "b"):
        rows += [*published(task, 1), *ran(task, 4.5, at), *settled(task, at)]
    return rows


def chord_early(at: float) -> list[Row]:
    rows = [row("chord", 0.5, body="body", headers=["a"]), *published("a", 1)]
    return [*rows, *ran("body", at, at + 1), *settled("body", at + 1), *ran("a", 40, 41),
            *settled("a", 42)]  # fmt: skip


def unfinished(at: float) -> list[Row]:
    return [row("publish", at, "a"), *ran("a", at, None)]


#: A log that has it, by the time of what would excuse it.
LOGS = {
    "lost": lambda at: published("a", at),
    "unfinished": unfinished,
    "unknown": lambda at: [*ran("a", at, at + 1), *settled("a", at + 1)],
    "overlap": lambda at: [
        *published("a", 1),
        *ran("a", at, at + 9),
        *ran("a", at + 1, at + 8, 2, "two"),
        *settled("a", at + 9),
    ],
    "settled twice": twice,
    "ran again": again,
    "object": lambda at: [
        *published("a", 1),
        *published("b", 1),
        *ran("a", at, at + 9, object="row"),
        *ran("b", at + 1, at + 8, worker="two", object="row"),
        *settled("a", at + 9),
        *settled("b", at + 9),
    ],
    "attempts": same_number,
    "chord early": chord_early,
    "chord missing": no_body,
}


def happened(name: str) -> Happened:
    lost = (SINCE, UNTIL) if name in LOSES_DATA else None
    return Happened(name, SINCE, UNTIL, "one", lost)


def found(rows: Iterable[Row], name: str, *deaths: Death, stray: Iterable[str] = ()) -> set[str]:
    """What is beyond the table, by kind, in a log of a world in which that fault happened."""
    in_order = sorted([*well(), *rows], key=lambda row: float(row["at"]))
    return {fault.kind for fault in judge(in_order, [happened(name)], deaths, stray).faults}


def test_each_kind_of_fault_has_a_log() -> None:
    assert LOGS.keys() == CHECKED.keys()


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("kind", LOGS)
def test_what_is_not_of_the_fault_is_refused_and_what_is_may_be(name: str, kind: str) -> None:
    rows = LOGS[kind]
    may = kind in FAULTS[name].allows and FAULTS[name].allows.keys() & {"lost"}

    assert kind in found(rows(BEFORE), name), "before it"
    assert kind in found(rows(AFTER), name), "after it"
    assert (kind not in found(rows(WITHIN), name)) is bool(may), "within it"


@pytest.mark.parametrize("name", FAULTS)
def test_a_lock_is_left_only_by_who_lost_data_and_no_other_key_is(name: str) -> None:
    def holding(at: float) -> list[Row]:
        return [*published("a", 1), *ran("a", at, at + 0.1, object="row"), *settled("a", at + 0.2)]

    may = STRAY in FAULTS[name].allows
    assert (found(holding(WITHIN), name, stray=[LOCK]) == set()) is may
    assert found(holding(BEFORE), name, stray=[LOCK]) == {STRAY}
    for key in (f"{LEDGER}task:a", f"{LEDGER}due", "celery", "unacked:one", f"{LEDGER}lock:other"):
        assert found(holding(WITHIN), name, stray=[key]) == {STRAY}, key


@pytest.mark.parametrize("kind", ["overlap", "object"])
def test_an_overlap_is_one_until_its_worker_was_declared_dead(kind: str) -> None:
    # The first begins at 11, on the worker "one", and the second at 12.
    rows = LOGS[kind](WITHIN)
    assert found(rows, "partition", Death("one", 11.9, 12.0)) == set()
    assert found(rows, "partition", Death("one", 12.1, 12.2)) == {kind}, "it came too early"
    assert found(rows, "partition", Death("one", 10.9, 11.0)) == {kind}, "it began after that"
    assert found(rows, "partition", Death("two", 11.9, 12.0)) == {kind}, "another died"
    assert found(rows, "partition") == {kind}, "nobody died"


@pytest.mark.parametrize("kind", ["ran again", "overlap", "object"])
def test_what_was_claimed_before_may_begin_as_its_worker_goes_on(kind: str) -> None:
    def beyond(at: float, attempts: tuple[int, int] = (1, 2), died: float = 11.5) -> set[str]:
        other = {"object": "row"} if kind == "object" else {}
        # The successor's run ends before that, or goes on.
        until = 11.9 if kind == "ran again" else 30
        rows = [
            *published("a", 1),
            *ran("a", 11.8, until, attempts[1], "two", **other),
            *settled("a", until),
            *ran("a", at, at + 1, attempts[0], "one", **other),
        ]
        return found(rows, "freeze", Death("one", died, died + 0.1))

    all_of_it = {kind, "attempts"} | ({"overlap"} if kind == "object" else set())
    # The fault is over at 12, which may be seen late.
    assert beyond(12.1) == beyond(13.9) == set()
    assert beyond(14.1) == all_of_it, "it went on long before"
    assert beyond(12.1, (2, 2)) == all_of_it, "it is no earlier attempt"
    assert beyond(12.1, (3, 2)) == all_of_it - {"attempts"}, "it is a later one"
    assert beyond(12.1, died=12.2) == all_of_it, "it had not been declared dead"
    assert beyond(12.1, died=9.5) == all_of_it, "it died of something else"


def test_a_death_is_explained_by_what_befell_its_worker_then() -> None:
    deaths = [
        Death("one", 11, 11.2),
        Death("one", BEFORE, BEFORE + 0.2),
        Death("one", AFTER, AFTER + 0.2),
        Death("two", 11, 11.2),
    ]
    assert unexplained([happened("partition")], deaths) == deaths[1:]
    assert unexplained([happened("redis-clock")], deaths) == deaths


def test_the_page_says_what_the_table_says() -> None:
    tree = doctree(ROOT / "docs" / "proof.rst")
    sections = [one for one in tree.findall(nodes.section) if "faults-of-the-world" in one["ids"]]
    assert len(sections) == 1
    rows = [
        tuple(" ".join(entry.astext().split()) for entry in row.findall(nodes.entry))
        for row in sections[0].findall(nodes.row)
    ]
    expected = [
        tuple(_plain(text) for text in (fault.name, fault.what, fault.cost))
        for fault in FAULTS.values()
    ]
    assert rows[1:] == expected


def _plain(text: str) -> str:
    return text.replace("``", "").replace("*", "")


def test_a_plan_comes_from_its_seed_alone_and_has_every_fault() -> None:
    assert f"{worlds(1, 20, list(FAULTS), 4)}" == f"{worlds(1, 20, list(FAULTS), 4)}"
    assert f"{worlds(1, 20, list(FAULTS), 4)}" != f"{worlds(2, 20, list(FAULTS), 4)}"
    planned = worlds(1, 20, list(FAULTS), 4)
    assert {world.set_up for world in planned} == {ONE, SENTINEL}
    for world in planned:
        assert {step.fault for step in world.steps} == set(of_set_up(world.set_up)), world.name
    assert len({str(world.steps) for world in planned}) == len(planned)


REGISTER = [f"HSET {LEDGER}worker:me state alive", f"ZADD {LEDGER}workers 5000 me"]
CLAIM = [
    f"HSET {LEDGER}task:a state running attempt 1 claim 7=1=me\nt",
    f"HSET {LEDGER}claims:me a 1=7=t",
]
SETTLE = [f"DEL {LEDGER}task:a", f"HDEL {LEDGER}claims:me a"]
FORGET = [f"DEL {LEDGER}worker:me", f"ZREM {LEDGER}workers me"]


def command(*words: str) -> bytes:
    parts = [word.replace("=", " ").encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def text_of(*steps: list[str], database: str = "0") -> bytes:
    """An append-only file with these steps, each of which is a transaction."""
    found = command("SELECT", database)
    for step in steps:
        lines = ["MULTI", *step, "EXEC"]
        found += b"".join(command(*line.split(" ")) for line in lines)
    return found


def found_in(text: bytes) -> list[str]:
    history = History()
    history.follow(text)
    return history.found


WELL = (REGISTER, CLAIM, SETTLE, FORGET)


def test_nothing_is_wrong_with_a_life_of_a_task_wherever_it_is_broken_off() -> None:
    text = text_of(*WELL)
    for end in range(len(text) + 1):
        assert found_in(text[:end]) == [], end


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((REGISTER, CLAIM, SETTLE[:1]), "a: claimed by me"),
        ((REGISTER, CLAIM, SETTLE[:1], SETTLE[1:]), "a: claimed by me"),
        ((REGISTER, CLAIM, FORGET), "me: no pass looks at it"),
        ((REGISTER, CLAIM, FORGET[1:]), "me: no pass looks at it"),
        ((REGISTER[:1], CLAIM), "me: no pass looks at it"),
        ((REGISTER, CLAIM, [f"HSET {LEDGER}task:a state queued"]), "a: claimed by me"),
        ((REGISTER, CLAIM, [f"HSET {LEDGER}task:a claim 7=1=other\nt"]), "a: claimed by me"),
        ((REGISTER, CLAIM, [f"HINCRBY {LEDGER}task:a attempt 1"]), "a: claimed by me"),
        ((REGISTER, CLAIM[1:]), "a: claimed by me"),
    ],
)
def test_a_claim_that_is_left_for_a_moment_is_told(steps: tuple[list[str], ...], says: str) -> None:
    (first, *_) = found_in(text_of(*steps))
    assert first.startswith(says)
    assert "HSET" in first, "the commands before it"


def test_what_a_real_server_writes_is_followed(redis_server: RedisServer) -> None:
    ledger = open_ledger(redis_server.url(), namespace="reliable")
    scene = Scene(ledger, redis_server.client())
    scene.start_worker("me")
    result = StoredResult("result", "done", "done", 0, 1)
    scene.ledger.settle(scene.claim(scene.publish("a")), result)
    lost = scene.claim(scene.publish("b"))
    scene.kill_worker("me")
    scene.lose(lost)
    assert scene.workers.deregister("me", in_unacked=0)
    ledger.close()

    def followed() -> History:
        history = History()
        history.follow(history_in(redis_server.directory))
        return history

    # While it syncs the file, the server answers before it writes.
    wait_for(lambda: followed().n_claims == 4, 20, "the file has it all")
    assert followed().found == []
    scene.client.hset(f"{LEDGER}claims:me", "b", "1 7 t")
    wait_for(lambda: len(strays(redis_server.directory)) == 2, 20, "the file has that too")
    nobodys, ended = strays(redis_server.directory)
    assert nobodys.startswith("me: no pass looks at it")
    assert ended.startswith("b: claimed by me")
