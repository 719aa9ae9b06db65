"""Tasks that only some workers may run, and runs on several: how they wait, who gets whom."""

from __future__ import annotations

from celery import Celery

from celery_reliable.ledger import LivingWorker, Resent, Runs, answers
from celery_reliable.ledger.answers import Answer, Changed, Ended, Postponed
from celery_reliable.message import NAMED, Envelope, NamedWorkers
from celery_reliable.model import State, SweepReport
from celery_reliable.recovery.broker_view import BrokerView
from celery_reliable.recovery.named_tasks import Sending
from tests.ledger.scene import LEASE_MS, Scene

FAR_MS = 3_600_000


def park(scene: Scene) -> Answer:
    return scene.ledger.named.wait(scene.seen_due(), '{"only": ["gpu"]}', due_in_ms=FAR_MS)


def test_what_waits_for_a_worker_is_known_and_due_as_soon_as_one_is_there(scene: Scene) -> None:
    named = scene.ledger.named
    scene.publish()

    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=9), answers.Send)
    assert scene.resends() == 1
    assert isinstance(park(scene), answers.WaitsUntil)

    assert scene.state() == "waiting"
    # It has no message that was sent in vain.
    assert scene.resends() == 0
    assert scene.ledger.due(9)[1] == []
    assert (named.waiting(), list(named.each_waiting())) == (1, [[("task", '{"only": ["gpu"]}')]])
    assert isinstance(park(scene), answers.WaitsUntil)
    assert scene.ledger.due(9)[1] == []
    assert named.divert_all([("task", "")], is_waiting=True) == [answers.Diverted()]
    _, (due,) = scene.ledger.due(9)
    epoch, before = scene.record_of().epoch, scene.snapshot()
    # A message takes the place of its own publication only.
    late = Resent("late", "another", "another")
    assert scene.ledger.resend(due, due_in_ms=9, message=late) == answers.Changed()
    assert scene.snapshot() == before
    answer = scene.ledger.resend(due, due_in_ms=9, message=Resent("to gpu", epoch, epoch))
    assert isinstance(answer, answers.Send)
    assert answer.message == "to gpu"
    # From now on it is the message, and nothing waits.
    assert (scene.record_of().message, scene.state()) == ("to gpu", "queued")
    assert scene.record_of().waiting_for == ""
    assert named.waiting() == 0
    assert named.divert_all([("task", "")], is_waiting=True) == [answers.Changed()]
    # Nor of what the server remembers of it, and should not.
    scene.client.hset(scene.ledger.keys.waiting("workers"), "task", "{}")
    assert named.divert_all([("task", "")], is_waiting=True) == [answers.Changed()]
    assert named.waiting() == 0


def test_what_was_called_off_while_it_waited_waits_no_more(scene: Scene) -> None:
    named = scene.ledger.named
    message = scene.publish(state=State.WAITING)
    park(scene)
    scene.ledger.cancel("task", epoch=message.epoch)

    assert named.waiting() == 0
    assert scene.ledger.due(9)[1] == []


def test_a_queue_is_forgotten_unless_a_worker_has_registered_for_it(scene: Scene) -> None:
    named = scene.ledger.named
    facts = {"nodename": "gpu-a@h", "direct": "gpu-a@h.dq2"}
    scene.workers.register("a", lease_ms=LEASE_MS, client_id=0, facts=facts)
    ((queue, at),) = named.queues()

    assert named.unlist(queue, "1") == answers.Changed()
    assert named.unlist(queue, at) == answers.Unlisted()

    assert named.queues() == []


def test_what_is_released_is_sent_from_its_record_where_no_message_comes_back(scene: Scene) -> None:
    for is_unsent in (False, True):
        name = f"unsent {is_unsent}"
        scene.ledger.release(scene.claim(scene.publish(name)), due_in_ms=9, is_unsent=is_unsent)
        assert scene.record_of(name).is_unsent is is_unsent


def test_a_message_that_came_to_the_wrong_worker_counts_as_sent_for_the_first_time(
    scene: Scene,
) -> None:
    message = scene.publish()
    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=FAR_MS), answers.Send)

    scene.ledger.named.divert("task", message.epoch)

    record = scene.record_of()
    assert (scene.resends(), record.is_unsent) == (0, True)
    assert scene.overdue_ids() == ["task"]
    # One that carries no stamp may have no record: whoever has it has to see to it.
    assert scene.ledger.named.divert("never recorded", "") == answers.Absent()


def begin(scene: Scene, *members: str) -> Runs:
    runs = scene.ledger.runs
    runs.begin("run", members, name="app.work", only=("gpu-*",), due_in_ms=0)
    return runs


def workers(scene: Scene) -> dict[str, tuple[str, ...]]:
    found = scene.ledger.runs.find("run")
    assert found is not None
    return found.members


def test_a_worker_is_given_to_one_member_only(scene: Scene) -> None:
    runs = begin(scene, "one", "two", "three")

    given = [runs.assign("run", member, ["a", "b"]) for member in ("one", "two", "three")]

    assert given == ["a", "b", ""]
    # The same again: it has one.
    assert runs.assign("run", "one", ["a", "b"]) == "a"
    assert workers(scene) == {"one": ("a",), "two": ("b",), "three": ()}


def test_a_worker_that_a_member_had_is_nobodys_until_it_is_certain_that_it_begins_elsewhere(
    scene: Scene,
) -> None:
    runs = begin(scene, "one", "two")
    runs.assign("run", "one", ["a"])

    assert runs.assign("run", "one", ["b"]) == "b"

    assert workers(scene)["one"] == ("b", "a")
    assert runs.assign("run", "two", ["a", "b"]) == ""
    runs.confirm("run", "one", "b")
    assert runs.assign("run", "two", ["a", "b"]) == "a"
    runs.confirm("run", "one", "")
    assert workers(scene) == {"one": (), "two": ("a",)}


def test_a_worker_is_no_members_for_which_it_was_chosen_in_vain(scene: Scene) -> None:
    runs, message = begin(scene, "one", "two"), scene.publish("one")
    runs.assign("run", "one", ["gpu-a"])
    named = NamedWorkers(("gpu-*",), (), ("", "celery"), "run", "gpu-a")
    headers = {"id": "one", "task": "app.work", NAMED: named.as_header()}
    sent = Envelope(b"[]", "application/json", "utf-8", headers, {}, "", "gpu-a.dq2").to_text()
    again = Resent(sent, message.epoch, message.epoch)
    scene.ledger.resend(scene.seen_due("one"), due_in_ms=9, message=again)
    due, record = scene.seen_due("one"), scene.record_of("one")

    # Its worker is gone, and two find that at once.
    for living in ("gpu-b", "gpu-c"):
        sending_to(scene, living).send(due, record, SweepReport())

    assert workers(scene)["one"] == ("gpu-b",)
    assert runs.assign("run", "two", ["gpu-c"]) == "gpu-c"


def sending_to(scene: Scene, nodename: str) -> Sending:
    """A sweeper's that knows of one worker that lives."""
    redis = scene.client.connection_pool.connection_kwargs
    url = f"redis://127.0.0.1:{redis['port']}/{redis.get('db', 0)}"
    app = Celery("app", broker=url, set_as_current=False)
    app.conf.reliable = {"REDIS_URL": url}
    sending = Sending(app, scene.ledger, BrokerView(app))
    living = [LivingWorker(nodename, nodename, f"{nodename}.dq2")]
    sending._living_within = lambda seconds: living  # type: ignore[method-assign]
    return sending


def test_nobody_is_given_anything_of_a_run_that_is_forgotten(scene: Scene) -> None:
    runs = scene.ledger.runs

    assert runs.assign("run", "one", ["a"]) is None
    runs.confirm("run", "one", "a")

    assert runs.find("run") is None
    run = begin(scene, "one").find("run")
    assert run is not None
    assert (run.name, run.only) == ("app.work", ("gpu-*",))
    assert 0 <= scene.workers.time_ms() - run.begun_ms < 60_000


def test_a_run_that_is_over_is_forgotten_after_a_while(scene: Scene) -> None:
    runs = begin(scene, "one")
    ((name, due_ms),) = runs.due(9)

    assert runs.end(name, due_ms, due_in_ms=FAR_MS) == Postponed()
    assert runs.due(9) == []
    assert runs.end(name, due_ms, keep_ms=FAR_MS) == Changed()
    keys = scene.ledger.keys
    later_ms = f"{scene.client.zscore(keys.runs, name):.0f}"
    assert runs.end(name, later_ms, keep_ms=FAR_MS) == Ended()

    assert not scene.client.exists(keys.runs)
    assert FAR_MS - 60_000 < scene.client.pttl(keys.run("run")) <= FAR_MS


def test_a_run_of_which_a_member_is_published_later_is_not_forgotten(scene: Scene) -> None:
    runs = begin(scene, "one", "two")
    ((name, due_ms),) = runs.due(9)
    # None of its members has a record yet: its publisher is slow.
    runs.end(name, due_ms, keep_ms=FAR_MS)

    assert runs.assign("run", "one", ["a"]) == "a"

    assert scene.client.pttl(scene.ledger.keys.run("run")) > 1000 * FAR_MS
    ((name, due_ms),) = runs.due(9)
    assert runs.assign("run", "two", ["a"]) == ""
    assert runs.end(name, due_ms, keep_ms=FAR_MS) == Ended()
    # Who waits for a worker is looked at again and again.
    assert runs.assign("run", "two", ["a"]) == ""
    assert [one for one, _ in runs.due(9)] == ["run"]
