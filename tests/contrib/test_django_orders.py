"""Orders in the admin: asked first, given once, noted; refused without the right."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_reliable.operations import Desk
from tests.contrib.shown import ACT, LIST, page

ORDERS = f"{LIST}orders/"
GIVE, RESUME = f"{ACT}give_order/", f"{ACT}resume/"
YES = {"confirmed": "Yes"}


def test_a_queue_is_paused_and_resumed_by_buttons(log_in: Any, celery_project: Celery) -> None:
    client = log_in("view", "operate")
    assert "Nothing is paused" in page(client.get(ORDERS))
    given = {"kind": "pause", "target": "mail", "why": "<b>no", "for_seconds": "15m", "stop": "1"}
    refused = client.post(GIVE, {**given, **YES})
    assert "Nobody knows a queue mail" in refused.content.decode()
    assert refused.status_code == 400
    given["later"] = "1"

    asked = page(client.post(GIVE, given))

    assert "Give order?" in asked
    assert 'value="mail"' in asked
    with Desk(celery_project) as desk:
        assert desk.orders.all() == []
    told = page(client.post(GIVE, {**given, **YES}, follow=True))
    assert "Pause mail: order" in told
    assert "&lt;b&gt;no" in told
    with Desk(celery_project) as desk:
        (order,) = desk.orders.all()
    assert (order.kind.value, order.target, order.by) == ("pause", "mail", "django:user-0")
    assert order.stops
    assert order.until is not None
    assert order.given_at is not None
    assert (order.until - order.given_at).total_seconds() == 900
    assert "pause mail" in page(client.get(f"{LIST}desk/"))

    asked = page(client.get(RESUME, {"orders": order.id}))
    assert "Resume?" in asked
    assert f'value="{order.id}"' in asked
    one = {"orders": order.id, **YES}
    assert "Nothing is paused" in page(client.post(RESUME, one, follow=True))

    with Desk(celery_project) as desk:
        assert desk.orders.all() == []
        acts = [(one.act, one.phase, one.by) for one in reversed(desk.audit())]
    assert acts == [
        (act, phase, "django:user-0") for act in ("pause", "resume") for phase in ("begin", "end")
    ]
    assert "There is no order" in client.post(RESUME, one).content.decode()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "mail", "for_seconds": "soon"}, "is no length of time"),
        ({"target": "mail", "for_seconds": "0"}, "more than 0 seconds"),
        ({"target": "mail", "for_seconds": "nan"}, "is no length of time"),
        ({"target": ""}, "Target: This field is required"),
        ({"target": "mail", "object_id": "7"}, "Only a strike"),
    ],
)
def test_what_makes_no_sense_is_said_and_not_done(
    log_in: Any, celery_project: Celery, given: dict[str, str], said: str
) -> None:
    client = log_in("view", "operate")

    told = client.post(GIVE, {"kind": "pause", **given, **YES})
    assert (told.status_code, said in told.content.decode()) == (400, True)
    assert client.post(GIVE, {"kind": "end", "target": "mail", **YES}).status_code == 400
    with Desk(celery_project) as desk:
        assert desk.orders.all() == []
