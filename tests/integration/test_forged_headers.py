"""A producer that lies: each of our headers and properties forged, against a worker that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from celery_reliable.message import HEADER, HEIR, RETURNS, Stamp
from celery_reliable.worker.request import DELIVERY, EARLY, MESSAGE
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, META, RECORD, record_of, wait_until_settled
from tests.integration.foreign import element
from tests.support.promises import promise
from tests.support.records import fields_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

LONG = "x" * 100_000
NO_TEXT: list[Any] = [None, 7, -1, 10**400, 1.5, True, [], {}, [1, 2], {"a": {}}]


def stamps(generation: str, other: str) -> Iterator[Any]:
    """Values of the header ``reliable``; *other* is the one of somebody else's message."""
    yield from NO_TEXT
    yield from ("", ":", "x", "1:", ":0-ab", "-5:0-ab", "1e9:0-ab", "1.5:0-ab", "\x00:\x00")
    yield f"{chr(0x663)}:0-ab"
    yield from (f"{'9' * 20}:0-ab", f"{'9' * 400}:0-ab", f"0:{LONG}", "0:\r\nHSET a b", "2/1:0-ab")
    many = f"{'9' * 400}-ab"
    for epoch in ("", "0", "0-ab", "-5-ab", many, "0-ab cd", LONG, "called_off", "0-ab-cd-1"):
        yield f"{generation}:{epoch}"
        yield f"{int(generation) - 1}:{epoch}"
        yield f"{int(generation) + 10**6}:{epoch}"
    # A sender that published, and a number that it has not reached.
    sender = other.split("-")[-2]
    yield from (f"{generation}:0-{'ab' * 4}-{sender}-{number}" for number in (0, 1, 999, 10**14))


def forged(
    client: Any, generation: str, victim: str, stamp: str, token: str
) -> Iterator[tuple[str, bytes]]:
    """List elements that lie, each with what it lies about."""
    for value in stamps(generation, stamp):
        # The id of another task that runs, with a stamp that is not its own.
        for task_id in (str(uuid4()), victim):
            headers = {HEADER: value, "id": task_id}
            yield f"{HEADER}: {value!r:.60} of {task_id}", element(headers=headers)
            if isinstance(value, str):
                # It says whose it is, as the publisher's own does.
                headers[HEADER] = value + Stamp().of_task(task_id)[1:]
                yield f"{HEADER}: bound {value!r:.60} of {task_id}", element(headers=headers)
    for value in (*NO_TEXT, "", "1", "garbage", LONG):
        yield f"{HEIR}: {value!r:.60}", element(headers={HEIR: value})
        yield f"{HEIR}: {value!r:.60} of {victim}", element(headers={HEIR: value, "id": victim})
    claim = [1, 0, fields_of(client.hgetall(RECORD + victim))["owner"], 1e18]
    for name, values in {
        RETURNS: [*NO_TEXT, "", "3", -(10**9), LONG],
        EARLY: [*NO_TEXT, claim, [10**30, -1, LONG, "now"]],
        DELIVERY: [*NO_TEXT, token, LONG],
        MESSAGE: [*NO_TEXT, "garbage", LONG, element(headers={"id": victim}).decode()],
    }.items():
        for value in values:
            old = {"id": "old", HEADER: Stamp("1", f"0-{uuid4()}").of_task("old")}
            for headers in ({"lang": "js"}, old, {"id": victim}):
                lie = element(properties={name: value}, headers=headers)
                yield f"{name}: {value!r:.60} with {headers}", lie
    # Its own words: a copy of the victim's message that names another task.
    yield "a copy for another task", element(headers={HEADER: stamp, "id": victim})


@promise("never-two", "late-changes-nothing")
def test_a_forged_header_harms_no_other_task_and_no_worker(project: Project) -> None:
    client = project.redis.client()
    worker = project.start_worker("one", concurrency=3)
    victim = project.send("gate", "open")
    parked = project.send("work", 0, countdown=3600)
    project.effects.run_of(victim.id)
    record = wait_for(lambda: record_of(project.redis, victim.id), 5, "its record")
    record_of_parked = record_of(project.redis, parked.id)
    stamp = json.loads(record["message"])["headers"][HEADER]
    generation = client.hget(META, "generation").decode()
    # What a worker tells its processes of a message cannot be told by who sent it.
    stamp_of_liar = Stamp("1", "0-ab").of_task("liar")
    headers = {"id": "liar", "task": "project.gate", HEADER: stamp_of_liar}
    lie = element(b'[["open"], {}, {}]', headers=headers, properties={MESSAGE: "another message"})
    client.lpush("celery", lie)
    project.effects.run_of("liar")
    assert json.loads(record_of(project.redis, "liar")["message"])["headers"]["id"] == "liar"

    lies = dict(forged(client, generation, victim.id, stamp, record["token"]))
    assert len(lies) > 150
    for one in lies.values():
        client.lpush("celery", one)
    last = project.send("work", 0)

    assert last.get(timeout=60) == "worked"
    wait_for(lambda: not client.llen("celery"), 10, "all of it was taken")
    assert worker.is_running
    assert {k: v for k, v in record_of(project.redis, victim.id).items() if k != "due"} == record
    assert record_of(project.redis, parked.id) == record_of_parked
    assert client.hget(META, "generation").decode() == generation
    project.effects.open_gate("open")
    assert victim.get(timeout=10) == "open"
    wait_for(lambda: not client.exists(RECORD + victim.id), 10, "it is settled")
    assert len(project.effects.runs(victim.id)) == 1
    wait_for(lambda: not client.keys("unacked:*"), 20, "every lie is acknowledged")
    left = {key.decode() for key in client.keys(RECORD + "*")} - {RECORD + parked.id}
    dead = {RECORD + one.decode() for one in client.zrange(DEAD, 0, -1)}
    assert left == dead


@promise("nothing-lost")
def test_a_message_that_was_copied_onto_another_id_runs(project: Project) -> None:
    """A publisher that sends messages on, and knows nothing of the package, copies all headers."""
    client = project.redis.client()
    first = project.send("work", 0)
    (raw,) = client.lrange("celery", 0, -1)
    project.start_worker("one")
    assert first.get(timeout=20) == "worked"

    # By the way on which an idle worker waits, and by the way on which it takes what is there.
    for copied in (["alone"], ["several 1", "several 2", "several 3"]):
        messages = []
        for task_id in copied:
            message = json.loads(raw)
            message["headers"]["id"] = message["properties"]["correlation_id"] = task_id
            message["properties"]["delivery_tag"] = str(uuid4())
            messages.append(json.dumps(message))
        client.lpush("celery", *messages)
        for task_id in copied:
            wait_for(lambda: project.effects.finished(task_id), 20, f"{task_id} ran")  # noqa: B023
    wait_until_settled(project.redis, 20)
    assert all(len(project.effects.runs(one)) == 1 for one in ("alone", *copied))
