"""The pages of `docs/migrating`, on one project: it works in the old way, goes over to the package
under work, and back again.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import Page
from tests.docs.migrating.project import Tree
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

PAGES = (
    "migrating/acks-late.rst",
    "migrating/celery-once.rst",
    "migrating/celery-singleton.rst",
    "migrating/setnx-locks.rst",
    "migrating/visibility-timeout.rst",
    "migrating/relier.rst",
    "migrating/leaving.rst",
)
_PAGES = {name: Page(name) for name in PAGES}
for _page in _PAGES.values():
    _page.of("python")
(WORKER,) = _PAGES["migrating/relier.rst"].commands()
(RELEASE,) = _PAGES["migrating/leaving.rst"].commands()

ONCE = _PAGES["migrating/celery-once.rst"].block("scan_iter").text
SINGLETON = _PAGES["migrating/celery-singleton.rst"].block("clear_locks(app)").text
FORGET = _PAGES["migrating/leaving.rst"].block("scan_iter").text

#: What Relier 0.1.7 puts into its queue `default` for `documents.scans.read_scan.push(7)`; with
#: Relier itself `test_from_relier` does it.
OF_RELIER = {
    "schema_version": 1,
    "task_id": "f05ec6c3-feb6-4143-bb1c-9d184642872a",
    "payload": {"args": [7], "kwargs": {"colour": "red"}},
    "enqueued_at": "2026-11-23T00:21:14.068914+00:00",
    "checksum": "sha256:94370e363f62dd41ba97ac9ee2b1d919448b5b4b9dd05bb3f55177bcea2691f4",
    "_otel_context": {},
}

#: The task of each page, and what it does.
TASKS = {
    "letter": "documents.letters:send_letter",
    "report": "documents.reports:write_report",
    "index": "documents.index:index_document",
    "account": "documents.accounts:sync_account",
    "export": "documents.exports:export_year",
}


@pytest.fixture
def trees(tmp_path: Path, redis_server: RedisServer) -> Iterator[Callable[[str], Tree]]:
    made = []

    def make(which: str) -> Tree:
        made.append(Tree(which, tmp_path, redis_server, _PAGES.values()))
        return made[-1]

    yield make
    for tree in made:
        tree.close()


def delay(tree: Tree, number: int, *, more: str = "") -> list[str]:
    """Call each task with a number, in the order of `TASKS`; return their ids."""
    lines = ["from importlib import import_module"]
    for path in TASKS.values():
        module, _, name = path.partition(":")
        call = f"apply_async(({number},){more})"
        lines.append(f"print(import_module({module!r}).{name}.{call}.id)")
    return tree.run("\n".join(lines)).split()


def test_every_block_and_command_is_run_here() -> None:
    assert [one for page in _PAGES.values() for one in page.left()] == []


def test_work_goes_over_to_the_package_and_back(
    trees: Callable[[str], Tree], redis_server: RedisServer
) -> None:
    before, after = trees("before"), trees("after")
    broker, once = redis_server.client(), redis_server.client(3)

    def noted(number: int) -> dict[str, list[str]]:
        return {kind: after.told(f"{kind}-{number}") for kind in TASKS}

    def all_have(number: int, lines: list[str]) -> bool:
        return all(found == lines for found in noted(number).values())

    one_of_each, two_of_each = ([f"{kind}-{number}" for kind in TASKS] for number in (1, 2))
    # As it was: each runs one, and then the deployment begins.
    old = before.worker("old", concurrency=len(TASKS))
    after.hold(*one_of_each)
    delay(before, 1)
    wait_for(lambda: all_have(1, ["before began"]), 30, "the old worker runs one of each")
    old.signal_main(signal.SIGTERM)
    new = after.worker("new", concurrency=3 * len(TASKS), options=shlex.split(WORKER)[4:])
    # A web process with the old code: the new worker does it, and what the new code calls
    # meanwhile does not run beside it where the object is one.
    after.hold(*two_of_each)
    queued = delay(before, 2)
    before.run(
        "proj.celery.app.send_task('documents.scans.read_scan', "
        f"({OF_RELIER!r},), task_id={OF_RELIER['task_id']!r}, queue='default')"
    )
    wait_for(lambda: all_have(2, ["after began"]), 30, "the old code's calls")
    wait_for(lambda: after.noted("scan-7"), 20, "what stood in Relier's queue")
    called = delay(after, 2)
    twice = ("letter", "export")
    wait_for(lambda: all(len(noted(2)[kind]) == 2 for kind in twice), 20, "the new code's calls")
    once_only = {"report": 1, "index": 1, "account": 1}
    # With the object it is known, too: who calls gets the result of the one that there is.
    kinds = list(TASKS)
    same = [kind for kind, one, other in zip(kinds, queued, called, strict=True) if one == other]
    assert same == ["report", "index"]
    assert {kind: len(noted(2)[kind]) for kind in once_only} == once_only
    after.let_go(*two_of_each)
    ends = ["after began", "after ended"]
    wait_for(lambda: all(noted(2)[kind] == ends for kind in once_only), 20, "they end")
    # What the old worker runs, the new code does not see; neither do the locks of theirs.
    delay(after, 1)
    beside = ["before began", "after began"]
    wait_for(lambda: all_have(1, beside), 30, "they run beside each other")
    after.let_go(*one_of_each)
    assert old.wait_until_ended() == 0
    ended = sorted([*beside, "before ended", "after ended"])
    wait_for(lambda: all(sorted(one) == ended for one in noted(1).values()), 20, "both end")

    # The old locks of what the new worker did are still there, and stop nothing.
    locks = [key.decode() for key in once.keys("qo_*")]
    assert locks == ["qo_documents.reports.write_report_number-2"]
    assert len(redis_server.client(1).keys("SINGLETONLOCK_*")) == 1
    # Who still publishes with the old code finds them, and publishes nothing.
    delay(before, 2)
    delay(after, 2)
    for kind in ("report", "index"):
        wait_for(lambda kind=kind: noted(2)[kind] == ends * 2, 20, f"one {kind} more, not two")
    before.run(ONCE.replace("ONCE_URL", "proj.celery.ONCE_URL"))
    before.run(SINGLETON)
    assert not once.keys("qo_*")
    assert not redis_server.client(1).keys("SINGLETONLOCK_*")

    wait_for(lambda: not broker.keys("{reliable:0}:task:*"), 30, "nothing is left of them")

    # And back.
    new.stop()
    delay(after, 4)
    delay(after, 5, more=", countdown=600")
    assert len(broker.keys("{reliable:0}:task:*")) == 2 * len(TASKS)
    assert broker.llen("celery") == len(TASKS)
    after.ran("-m", *shlex.split(RELEASE))
    # What was in the ledger only is in the queue, too.
    assert broker.llen("celery") == 2 * len(TASKS)
    before.run(FORGET.replace("BROKER_URL", repr(redis_server.url())))
    assert not broker.keys("*reliable*")
    before.worker("back", concurrency=len(TASKS))
    wait_for(lambda: all_have(4, ["before began", "before ended"]), 30, "the old worker does them")
    assert not any(noted(5).values())
