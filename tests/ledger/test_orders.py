"""Orders of operators: what is struck is parked, and comes back in the order of publication."""

from __future__ import annotations

import pytest

from celery_reliable.ledger import dues_of, to_stop
from celery_reliable.ledger.answers import Changed, Gone, InForce, Resumed, Running, Struck, Woken
from celery_reliable.orders import OrderKind
from tests.ledger.scene import LOOK_MS, RestartableScene, Scene


def version(scene: Scene, worker: str = "me") -> int:
    """What the next beat of a worker says of the orders."""
    return scene.beat(worker).version


def test_each_order_and_each_end_of_one_is_another_version(scene: Scene) -> None:
    first = scene.order()
    seen = [version(scene)]
    scene.order(OrderKind.PAUSE, "mail")
    seen.append(version(scene))
    scene.ledger.orders.resume(first.id, by="ann")
    seen.append(version(scene))

    assert len(set(seen)) == 3
    assert seen == sorted(seen)
    assert scene.ledger.orders.read().version == seen[-1]


def test_it_says_who_why_and_until_when(scene: Scene) -> None:
    given = scene.order(for_ms=60_000)

    (read,) = scene.ledger.orders.read().all

    assert read == given
    said = (read.kind, read.target, read.by, read.why)
    assert said == (OrderKind.STRIKE, "app.work", "ann", "it is broken")
    assert read.until_ms == read.given_ms + 60_000


def test_only_who_has_the_right_ends_one_that_holds(scene: Scene) -> None:
    order = scene.order(for_ms=60_000)

    assert scene.ledger.orders.resume(order.id) == InForce()
    assert scene.ledger.orders.read().all == (order,)


def wake(scene: Scene) -> list[str]:
    """Let out what may begin; return the ids of what is to be sent."""
    answer = scene.ledger.moments.wake("me", lease_ms=LOOK_MS, limit=100, due_in_ms=LOOK_MS)
    assert isinstance(answer, Woken)
    return [due.task_id for due in dues_of(answer.ids_and_times)]


@pytest.mark.parametrize("queue", ["", "celery"])
@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_they_come_back_in_the_order_of_publication(scene: Scene, at_once: int, queue: str) -> None:
    names = [f"{n % 7}-{n}" for n in range(50)]
    messages = [scene.publish(name) for name in names]
    order = scene.order()
    for message in sorted(messages, key=lambda one: hash(one.epoch)):
        scene.ask(message, strikes=(order.id,), queue=queue)
    assert wake(scene) == []

    answers = [scene.ledger.orders.resume(order.id, by="ann", limit=at_once)]
    while answers[-1] != Gone():
        # Whoever began it may be killed in between; then a pass goes on.
        answers.append(scene.ledger.orders.resume(order.id, limit=at_once))

    assert sum(one.count for one in answers if isinstance(one, Resumed)) == 50
    # A pass leaves them to the waker, as long as there is one.
    assert scene.overdue_ids() == []
    scene.client.delete(scene.ledger.keys.begin + "waker")
    assert scene.overdue_ids() == names
    assert scene.ledger.orders.waiting([order.id]) == {order.id: 0}
    # One worker lets them out, and puts each into its list where it can.
    assert wake(scene) == ([] if queue else names)
    sent = [one.decode() for one in reversed(scene.client.lrange("celery", 0, -1))]
    assert sent == [scene.record_of(name).message for name in names if queue]


@pytest.mark.parametrize("how", ["called off", "sent", "moved", "struck by another"])
def test_what_waits_for_something_else_by_now_is_not_let_go(scene: Scene, how: str) -> None:
    message = scene.publish()
    order, other = (scene.order(for_ms=LOOK_MS) for _ in range(2))
    scene.ask(message, strikes=(order.id,))
    if how == "called off":
        scene.ledger.revoke("task")
    else:
        scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS)
        if how == "moved":
            scene.ledger.named.wait(scene.seen_due(), "{}", due_in_ms=LOOK_MS)
        elif how != "sent":
            scene.ask(message, strikes=(other.id,))
    before = scene.ledger.find("task"), scene.seen_due()

    assert scene.ledger.orders.resume(order.id, by="ann") == Resumed(0, False)

    assert (scene.ledger.find("task"), scene.seen_due()) == before
    assert wake(scene) == []


def test_a_call_that_comes_late_does_not_give_it_again(scene: Scene) -> None:
    seen = scene.ledger.orders.read().version
    order = scene.order()
    scene.ledger.orders.resume(order.id, by="ann")

    # What `give` sends, on its way since before that.
    late = scene.ledger.calls.order(
        id=order.id, kind="strike", target="app.work", object="", by="ann", why="", for_ms=0,
        version=seen,
    )  # fmt: skip
    assert scene.ledger._caller.run(late) == Changed()
    assert scene.ledger.orders.read().all == ()


# What is to be stopped.


def stops(scene: Scene, worker: str = "me") -> list[tuple[str, str]]:
    return [(claim.task_id, how) for claim, how in to_stop(scene.beat(worker), worker)]


def test_the_owner_hears_what_it_is_to_stop_while_it_runs(scene: Scene) -> None:
    claim = scene.claim(scene.publish())

    assert scene.ledger.revoke("task", if_running="kill") == Running("me")

    assert stops(scene, "other") == []
    assert stops(scene) == [("task", "kill")]
    assert stops(scene) == [("task", "kill")]
    scene.ledger.settle(claim, outcome="REVOKED")
    assert stops(scene) == []
    assert scene.state() == "absent"


def test_what_a_worker_was_to_stop_goes_with_it(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.ledger.revoke("task", if_running="kill")
    scene.lose(claim)

    assert scene.workers.deregister("me", in_unacked=0)

    assert not scene.client.exists(scene.ledger.keys.begin + "stops:me")


def test_what_runs_on_a_full_server_can_be_kept_off_and_let_go(
    restartable: RestartableScene,
) -> None:
    """It may be what fills it."""
    scene, orders = restartable, restartable.ledger.orders
    scene.claim(scene.publish("runs"))
    message = scene.publish()
    scene.client.config_set("maxmemory", 1)

    order = scene.order()
    assert isinstance(scene.ask(message, strikes=(order.id,)), Struck)
    assert scene.ledger.revoke("runs", if_running="kill") == Running("me")
    assert isinstance(orders.resume(order.id, by="ann"), Resumed)

    assert scene.overdue_ids() == ["task"]
