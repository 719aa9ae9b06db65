"""What an operator waits for at a terminal and in a browser, among many letters and tasks.

`python -m benchmarks.doors [--letters N] [--tasks N] [--rounds N]` starts a Redis of its own, fills
it, and runs each command that reads as a process of its own, beside a command of Celery's for the
same app that asks nobody anything; then each page of the admin, by Django's own test client.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from celery import Celery

from benchmarks.backlog import Backlog
from benchmarks.letters import fill
from celery_reliable import ReliableTask
from celery_reliable.operations import Desk
from tests.support.redis_server import RedisServer

_BROKER = "DOORS_BROKER"
_FAR_MS = 24 * 60 * 60 * 1000
_MOST_COMMAND_MS, _MOST_PAGE_MS = 1_000, 300
_LETTER = "letter-0050000"

#: GROUP, LETTER and TASK stand for ids.
_COMMANDS = (
    "status",
    "status --check",
    "tasks",
    "tasks --state waiting",
    "tasks --task no.such",
    "tasks --queue no.such",
    "tasks --state dead",
    "show TASK",
    "show LETTER",
    "revoke TASK --dry-run",
    "objects",
    "workers",
    "events",
    "audit",
    "dead-letters list",
    "dead-letters list --group GROUP",
    "dead-letters list --exception nobody",
    "dead-letters list --queue no.such",
    "dead-letters groups",
    "dead-letters groups --task mail.*",
    "show LETTER",
    "dead-letters replay --group GROUP --dry-run",
    "dead-letters replay --all --dry-run",
)
_PAGES = (
    "desk/",
    "",
    "?task=mail.*",
    "?exception=nobody",
    "?queue=no.such",
    "?group=GROUP",
    "groups/",
    "tasks/",
    "tasks/?state=waiting",
    "tasks/?state=dead",
    "tasks/?task=no.such",
    "tasks/task/TASK/",
    "tasks/task/LETTER/",
    "objects/",
    "workers/",
    "audit/",
)


def create_app(url: str) -> Celery:
    """The app whose ledger is looked at."""
    app = Celery("doors", broker=url, set_as_current=False)
    app.task(_work, name="doors.work", base=ReliableTask, shared=False, ignore_result=True)
    return app


def _work() -> None:
    """Nobody runs it."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doors", description=__doc__)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["commands", "pages"], help="not both")
    parser.add_argument("--commands", nargs="+", metavar="WORD", help="those that begin with it")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder), {"appendonly": "no", "save": ""}) as server,
    ):
        app = create_app(server.url())
        backlog = Backlog(app, app.tasks["doors.work"], server)
        (task_id, *_) = backlog.add("celery", given.tasks, due_in_ms=_FAR_MS)
        with Desk(app, patience_seconds=60) as desk:
            fill(desk, server.client(), given.letters)
            group = desk.letter_groups.all().groups[0].group
        known = {"TASK": task_id, "LETTER": _LETTER, "GROUP": group}
        print(f"{given.letters} dead letters, {given.tasks} tasks; medians of {given.rounds}")
        if given.only != "pages":
            wanted = tuple(given.commands or [""])
            chosen = [one for one in _COMMANDS if one.startswith(wanted)]
            _commands(server.url(), chosen, known, given.rounds)
        if given.only != "commands":
            _pages(app, server.client(), known, given.rounds)
        backlog.close()
        app.close()


def _commands(url: str, commands: list[str], known: dict[str, str], rounds: int) -> None:
    environ = {**os.environ, _BROKER: url, "COLUMNS": "80"}

    def took(*words: str) -> tuple[float, float]:
        """Run it, and return how long it took, and the CPU time that it took, in ms."""
        spent, started = _cpu_of_children(), time.perf_counter()
        ran = subprocess.run(
            [sys.executable, "-m", "celery", "-A", "benchmarks.doors", *words],
            env=environ,
            capture_output=True,
            text=True,
        )
        wall = 1000 * (time.perf_counter() - started)
        # Something is wrong in this Redis, as nobody works.
        assert ran.returncode in ((0, 1) if "--check" in words else (0,)), (words, ran.stderr)
        return wall, 1000 * (_cpu_of_children() - spent)

    # In turns, as other processes come and go.
    for command in commands:
        words = [known.get(word, word) for word in command.split()]
        pairs = [(took("report"), took("reliable", *words)) for _ in range(rounds)]
        own = statistics.median(one[0][0] for one in pairs)
        more = statistics.median(one[1][0] - one[0][0] for one in pairs)
        cpu = statistics.median(one[1][1] - one[0][1] for one in pairs)
        over = f"  more than {_MOST_COMMAND_MS} ms" if more > _MOST_COMMAND_MS else ""
        print(
            f"{command:<46} celery report {own:>6.0f} ms, and {more:>+6.0f} ms, CPU {cpu:>+6.0f} ms"
            f"{over}",
            flush=True,
        )


def _cpu_of_children() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def _pages(app: Celery, redis: Any, known: dict[str, str], rounds: int) -> None:
    client = _client()
    app.set_current()
    for page in _PAGES:
        address = page
        for word, value in known.items():
            # As the admin quotes them: an id is a part of the path.
            address = address.replace(word, value)
        took, cpu = [], []
        for _ in range(rounds + 1):
            started, spent = time.perf_counter(), _cpu_seconds(redis)
            answer = client.get(f"/admin/celery_reliable/deadletter/{address}")
            took.append(1000 * (time.perf_counter() - started))
            cpu.append(1000 * (_cpu_seconds(redis) - spent))
            assert answer.status_code == 200, (page, answer.status_code)
        ms, worst = statistics.median(took[1:]), max(took)
        over = f"  more than {_MOST_PAGE_MS} ms" if worst > _MOST_PAGE_MS else ""
        print(
            f"{'/' + page:<46} {ms:>7.0f} ms, worst {worst:>7.0f} ms, CPU "
            f"{statistics.median(cpu[1:]):>5.0f} ms{over}",
            flush=True,
        )


def _cpu_seconds(redis: Any) -> float:
    """Return the CPU time of this process and of the server so far."""
    found = redis.info("cpu")
    return time.process_time() + float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def _client() -> Any:
    """Return a superuser's client of a site in this very process."""
    import django
    from django.core.management import call_command

    import tests.contrib.conftest  # noqa: F401 - configures Django

    django.setup()
    call_command("migrate", verbosity=0)
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    return client


if _BROKER in os.environ:
    app = create_app(os.environ[_BROKER])
    app.set_current()

if __name__ == "__main__":
    main()
