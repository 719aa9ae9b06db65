"""Giving everything back before the package goes: what fails half-way is done by the next try."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import redis

from celery_reliable.app import reliable_of
from celery_reliable.message import HEADER, Envelope, Stamp
from celery_reliable.operations import uninstall
from celery_reliable.operations.uninstall import release
from celery_reliable.recovery import named_tasks
from tests.integration.conftest import SOON, Project
from tests.integration.project import named

OWN = "gpu-a@host.dq2"


@pytest.fixture
def fleet(project: Project) -> Project:
    """A project that publishes, and of which nobody is alive."""
    found = project.with_settings(reliable=SOON)
    named.add_tasks(found.app)
    return found


@pytest.fixture
def client(fleet: Project) -> redis.Redis:
    return fleet.redis.client()


def waiting(client: redis.Redis, queue: str) -> list[str]:
    """The ids of the tasks in a queue, sorted."""
    return sorted(json.loads(raw)["headers"]["id"] for raw in client.lrange(queue, 0, -1))


def in_own_queue(project: Project, client: redis.Redis, task_ids: list[str]) -> None:
    """Let tasks that wait for a worker have been sent to one, which is gone."""
    client.zadd("{reliable:0}:direct", {OWN: 1})
    for task_id in task_ids:
        record = reliable_of(project.app).ledger.find(task_id)
        assert record is not None
        message = replace(Envelope.from_text(record.message), exchange="", routing_key=OWN)
        client.lpush(OWN, message.to_text())
        client.hset(
            f"{{reliable:0}}:task:{task_id}",
            mapping={"state": "queued", "message": message.to_text()},
        )


def break_sends(monkeypatch: pytest.MonkeyPatch, module: Any, number: int) -> None:
    """Let the connection break as the message of this number is sent."""
    send, sent = module.resend, []

    def resend(*args: Any, **options: Any) -> None:
        sent.append(args)
        if len(sent) == number:
            raise OSError("connection reset")
        send(*args, **options)

    monkeypatch.setattr(module, "resend", resend)


@pytest.mark.parametrize("how", ["parked", "in the queue of a worker"])
def test_what_could_not_be_sent_is_sent_by_the_next_try(
    fleet: Project, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    options = {"countdown": 3600} if how == "parked" else {}
    sent = [fleet.send("on_gpu", "gate", **options).id for _ in range(3)]
    if how != "parked":
        in_own_queue(fleet, client, sent)
    break_sends(monkeypatch, uninstall, 2)

    with pytest.raises(OSError, match="reset"):
        release(fleet.app)
    assert len(waiting(client, "celery")) == 1
    release(fleet.app)

    assert waiting(client, "celery") == sorted(sent)
    assert client.llen(OWN) == 0
    done = release(fleet.app)
    assert (done.parked, done.sent, done.messages) == (0, 0, 0)
    assert waiting(client, "celery") == sorted(sent)


@pytest.mark.untraced("records are taken away by hand")
def test_what_has_lost_its_record_is_given_back_once_though_that_breaks_off(
    fleet: Project, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [fleet.send("on_gpu", "gate").id for _ in range(5)]
    in_own_queue(fleet, client, sent)
    client.delete(*client.keys("{reliable:0}:task:*"), *client.keys("{reliable:0}:sent:*"))
    client.delete("{reliable:0}:due", "{reliable:0}:meta")
    break_sends(monkeypatch, named_tasks, 4)

    with pytest.raises(OSError, match="reset"):
        release(fleet.app)
    release(fleet.app)

    assert waiting(client, "celery") == sorted(sent)
    assert client.llen(OWN) == 0


@pytest.mark.untraced("records are taken away by hand")
def test_what_has_ended_is_not_given_back_to_who_would_run_it_again(
    fleet: Project, client: redis.Redis
) -> None:
    ended = fleet.send("on_gpu", "gate").id
    in_own_queue(fleet, client, [ended])
    client.delete(f"{{reliable:0}}:task:{ended}")
    client.zrem("{reliable:0}:due", ended)

    release(fleet.app)

    assert waiting(client, "celery") == []
    assert client.llen(OWN) == 0


@pytest.mark.untraced("a message is changed by hand")
def test_what_had_no_stamp_is_given_back_with_that_of_its_record(
    fleet: Project, client: redis.Redis
) -> None:
    task_id = fleet.send("on_gpu", "gate").id
    in_own_queue(fleet, client, [task_id])
    key = f"{{reliable:0}}:task:{task_id}"
    message = Envelope.from_text((client.hget(key, "message") or b"").decode())
    bare = {name: value for name, value in message.headers.items() if name != HEADER}
    client.hset(key, "message", replace(message, headers=bare).to_text())

    release(fleet.app)

    (raw,) = client.lrange("celery", 0, -1)
    stamp = Stamp.of(json.loads(raw)["headers"])
    record = reliable_of(fleet.app).ledger.find(task_id)
    assert record is not None
    assert (bool(stamp.generation), stamp.epoch) == (True, record.epoch)


@pytest.mark.parametrize("may_scan", [True, False])
@pytest.mark.parametrize("prefix", ["", "[a*]:"])
def test_what_a_worker_has_left_on_the_way_from_its_queue_is_given_back(
    fleet: Project, client: redis.Redis, may_scan: bool, prefix: str
) -> None:
    settings: dict[str, Any] = {"broker_transport_options": {"global_keyprefix": prefix}}
    project = fleet.with_settings(celery=settings)
    plain, ours = project.send("plain_work", 0.01), project.send("work", 0.01)
    queue = f"{prefix}celery"
    inbox = f"{prefix}celery-reliable.inbox:{queue}"
    for _ in range(2):
        assert client.lmove(queue, inbox, "RIGHT", "LEFT")
    if not may_scan:
        rights = ["on", ">secret", "~*", "&*", "+@all", "-scan"]
        client.execute_command("ACL", "SETUSER", "operator", *rights)
        url = fleet.redis.url().replace("redis://", "redis://operator:secret@")
        project = fleet.with_settings(broker_url=url, celery=settings)

    assert release(project.app).messages == 2

    assert waiting(client, queue) == sorted([plain.id, ours.id])
    assert not client.exists(inbox)
