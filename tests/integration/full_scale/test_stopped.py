"""The figures of the stop button under load; small unless `--full` is given, shown with `-s`."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from celery_reliable.app import reliable_of
from celery_reliable.operations.desk import Desk
from celery_reliable.orders import OrderKind
from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, wait_until_settled
from tests.support.waiting import wait_for

QUEUES = ("-Q", "celery,other")
#: Within which every worker obeys; in a loaded machine's run of all tests it may take longer.
OBEYED_SECONDS, PATIENT_SECONDS = 3.0, 15.0


class Load:
    """Publishes three kinds of tasks, one of each at a time, until told to stop."""

    def __init__(self, project: Project, every_seconds: float) -> None:
        self._project = project
        self._every_seconds = every_seconds
        #: Ids by kind, in the order of publication.
        self.sent: dict[str, list[str]] = defaultdict(list)
        self._is_over = threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self._publish)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _publish(self) -> None:
        send, number = self._project.send, 0
        while not self._is_over.wait(self._every_seconds):
            number += 1
            self.sent["struck"].append(send("locked", f"{number}", 0, ignore_result=True).id)
            self.sent["paused"].append(send("work", 0, ignore_result=True, queue="other").id)
            self.sent["free"].append(send("work", 0, ignore_result=True).id)


def test_nothing_that_is_stopped_begins_and_all_of_it_comes_back_in_order(
    soon: Project, scale: Scale
) -> None:
    names = [f"w{n}" for n in range(scale.of(full=20, small=2))]
    workers = soon.start_workers(*names, concurrency=1, pool="threads", options=QUEUES)
    effects, ledger = soon.effects, reliable_of(soon.app).ledger
    load = Load(soon, scale.of(full=0.05, small=0.1))

    def begun(kind: str, since: float = 0.0) -> list[float]:
        ids = set(load.sent[kind])
        return [
            one.started_at
            for one in effects.runs()
            if (one.task_id in ids or kind in one.worker) and one.started_at > since
        ]

    with load.going_on(), Desk(soon.app) as desk:
        for kind in ("struck", "paused", "free", "w0@"):
            wait_for(lambda k=kind: len(begun(k)) >= 3, 60, f"{kind} goes on")
        given_at = effects.now()
        for order, target in (
            (OrderKind.STRIKE, "project.locked"),
            (OrderKind.PAUSE, "other"),
            (OrderKind.DRAIN, "w0@*"),
        ):
            desk.orders.give(order, target, by="ann")

        def all_have_heard() -> bool:
            version = ledger.orders.read().version
            looks = ledger.worker_looks()
            return all(one.doing.get("orders") == version for one in looks)

        wait_for(all_have_heard, PATIENT_SECONDS, "all have heard of it")
        heard_at, n_before = effects.now(), len(load.sent["paused"])
        # One that starts meanwhile obeys from the beginning.
        late = soon.start_worker("late", concurrency=1, pool="threads", options=QUEUES)
        wait_for(lambda: len(begun("late@")) >= 5, 120, "the new one works")
        wait_for(lambda: effects.now() > given_at + 2 * OBEYED_SECONDS, 30, "some time passes")
        stopped = {kind: begun(kind, given_at) for kind in ("struck", "paused", "w0@")}
        latest = {kind: max(found, default=given_at) - given_at for kind, found in stopped.items()}
        assert not [one for one in begun("late@") if one in begun("struck") + begun("paused")]
        desk.orders.resume("w0@*", by="ann")
        wait_for(lambda: begun("w0@", heard_at), 60, "the drained one works again")

    print(
        f"\n{len(names)} workers: heard of after {heard_at - given_at:.2f} s; the last that began "
        + ", ".join(f"{kind} after {seconds:.2f} s" for kind, seconds in latest.items())
    )
    within = scale.of(full=OBEYED_SECONDS, small=PATIENT_SECONDS)
    assert all(seconds <= within for seconds in latest.values())

    # One after the other shows in which order they come back.
    for worker in workers.values():
        worker.signal_main(signal.SIGTERM)
    for worker in workers.values():
        worker.wait_until_ended(60)
    resumed_at = effects.now()
    with Desk(soon.app) as desk:
        desk.orders.resume("project.locked", by="ann")
        desk.orders.resume("other", by="ann")
    wait_until_settled(soon.redis, 120)
    assert_each_ran_once(effects, [one for ids in load.sent.values() for one in ids])
    # What several workers had fetched goes back in the order of each.
    for kind, published in (
        ("struck", load.sent["struck"]),
        ("paused", load.sent["paused"][n_before:]),
    ):
        back = [one.task_id for one in effects.runs() if one.started_at > resumed_at]
        back = [one for one in back if one in set(published)]
        assert len(back) >= 10, kind
        assert back == [one for one in published if one in set(back)]
    assert late.is_running
