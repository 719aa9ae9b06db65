"""What tests ask of ledger, broker, workers and effects."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import psutil
import redis

from tests.support.effects import Effects, Run
from tests.support.processes import CeleryProcess
from tests.support.records import fields_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

LEDGER = "{reliable:0}:"
RECORD = "{reliable:0}:task:"
LOCKS = "{reliable:0}:lock:*"
DEAD = "{reliable:0}:dead"
DUE = "{reliable:0}:due"
META = "{reliable:0}:meta"
WORKERS = "{reliable:0}:workers"
WAKER = "{reliable:0}:waker"


def waiting_clients(client: redis.Redis) -> list[str]:
    """The ids of the connections on which workers wait for messages."""
    return [one["id"] for one in client.client_list() if one["cmd"] in ("brpop", "blmove")]


def record_of(redis_server: RedisServer, task_id: str) -> dict[str, str]:
    """The task's record as it stands in Redis; empty when there is none."""
    with redis_server.client() as client:
        raw: dict[bytes, bytes] = client.hgetall(RECORD + task_id)  # type: ignore[assignment]
    return fields_of(raw)


def wait_until_gone(redis_server: RedisServer, task_id: str, timeout_seconds: float = 15) -> None:
    """Wait until the task is settled, and every message acknowledged."""
    with redis_server.client() as client:
        wait_for(lambda: not client.exists(RECORD + task_id), timeout_seconds, f"{task_id} settled")
        wait_for(lambda: not client.keys("unacked:*"), timeout_seconds, "acknowledged")
        assert client.zscore(DUE, task_id) is None


def wait_until_free(redis_server: RedisServer) -> None:
    """Wait until every task has ended, and no object is held."""
    with redis_server.client() as client:
        wait_for(lambda: not client.keys(RECORD + "*"), 20, "every task settled")
        wait_for(lambda: not client.keys(LOCKS), 5, "no object held")


def wait_until_settled(redis_server: RedisServer, timeout_seconds: float) -> None:
    """Wait until nothing of any task remains: no record, no message, no delivery, no dead letter.

    However many records there are, a look costs as much as finding one of them.
    """
    with redis_server.client() as client:
        for pattern in (RECORD + "*", "unacked*"):
            wait_for(
                lambda p=pattern: next(client.scan_iter(p, count=1000), None) is None,
                timeout_seconds,
                f"nothing of {pattern}",
            )
        assert client.zcard(DEAD) == client.zcard(DUE) == 0
        assert client.llen("celery") == 0


def assert_each_ran_once(effects: Effects, task_ids: Sequence[str]) -> None:
    """None of these is lost, and none ran twice: not at once, and not one after the other."""
    wanted = set(task_ids)
    assert len(wanted) == len(task_ids)
    runs = [run for run in effects.runs() if run.task_id in wanted]
    counts = Counter(run.task_id for run in runs)
    assert [i for i in task_ids if not counts[i]] == [], "lost"
    assert [run for run in runs if counts[run.task_id] > 1] == [], "run more than once"
    assert [run for run in runs if run.outcome != "finished"] == []


def leases(redis_server: RedisServer) -> set[str]:
    """The ids of the workers that hold a lease: one that was declared dead gets another."""
    with redis_server.client() as client:
        return {found.decode() for found in client.zrange(WORKERS, 0, -1)}


def passes_finish(redis_server: RedisServer, count: int, timeout_seconds: float) -> None:
    """Wait until the sweeper has begun so many passes from now on."""
    seen: set[bytes | None] = set()
    with redis_server.client() as client:

        def has_seen_them() -> bool:
            seen.add(client.hget(META, "passed_ms"))
            return len(seen) > count

        wait_for(has_seen_them, timeout_seconds, f"{count} passes")


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def is_alive(pid: int) -> bool:
    """Whether the process has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def worker_of(workers: Mapping[str, CeleryProcess], run: Run) -> str:
    """The name of the worker that a run is on."""
    return next(name for name in workers if run.worker.startswith(f"{name}@"))


def ids_in(redis_server: RedisServer, queue: str) -> list[str]:
    """The ids of what waits in a queue, in the order in which it is taken."""
    with redis_server.client() as client:
        raw: list[bytes] = client.lrange(queue, 0, -1)  # type: ignore[assignment]
    return [json.loads(one)["headers"]["id"] for one in reversed(raw)]


def refusal(worker: CeleryProcess) -> str:
    """Wait for the end of a worker that must not start, and return the one line that it says."""
    assert worker.wait_until_ended() != 0
    text = worker.log_text()
    assert "Traceback" not in text, text
    said = [line for line in text.splitlines() if line.startswith("celery_reliable:")]
    assert len(said) == 1, text
    return said[0]


def most_at_once(runs: Sequence[Run]) -> int:
    """How many of these went on at the same moment, as far as that is proven."""
    moments = [(one.started_at, 1) for one in runs] + [(one.last_seen_at, -1) for one in runs]
    now = most = 0
    for _, change in sorted(moments, key=lambda one: (one[0], one[1])):
        now += change
        most = max(most, now)
    return most
