"""The fourteen questions of whoever is called at night, in the admin: five clicks are the most."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import urljoin

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk, OrderKind
from tests.contrib.shown import LIST, page


class Visitor:
    """Follows links and presses buttons of what is shown, from the admin's index on."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.clicks = 0
        self._go("/admin/")

    def click(self, said: str) -> str:
        """Follow the link that has this text, or this id; return what is shown then."""
        links = re.findall(r"<a\s([^>]*)>(.*?)</a>", self.shown, flags=re.DOTALL)
        href = next(
            found[1]
            for attributes, text in links
            if said == text.strip() or f'id="{said}"' in attributes
            if (found := re.search('href="([^"]*)"', attributes))
        )
        self.clicks += 1
        return self._go(urljoin(self.address, unescape(href)))

    def press(self, **typed: str) -> str:
        """Type this into the form of an act, and say yes."""
        form = self.shown[self.shown.index('id="desk-confirm"') :]
        hidden = dict(re.findall(r'type="hidden" name="(\w+)"(?: value="([^"]*)")?', form))
        given = {**{name: unescape(one) for name, one in hidden.items()}, **typed}
        self.clicks += 1
        answer = self._client.post(self.address, {**given, "confirmed": "yes"}, follow=True)
        self.shown = page(answer)
        return self.shown

    def _go(self, address: str) -> str:
        self.address, self.shown = address, page(self._client.get(address))
        return self.shown


def test_each_question_is_answered_within_the_clicks_it_took_once(
    put: Callable[..., None], bill: Any, log_in: Any, celery_project: Celery, desk: Desk
) -> None:
    for name in ("card", "card-2"):
        put(name, "CardDeclined: 4711")
    bill.apply_async((), task_id="later", countdown=3600)
    desk.orders.give(OrderKind.PAUSE, "celery", by="ann", why="a new price list", for_seconds=900)
    facts = {"nodename": "w1@here", "queues": ["celery"]}
    reliable_of(celery_project).ledger.workers.register(
        "w1@here/ab.0", lease_ms=60_000, client_id=1, facts=facts
    )
    client = log_in(is_superuser=True)

    def visitor(*clicks: str) -> Visitor:
        found = Visitor(client)
        for one in ("Desk", *clicks):
            found.click(one)
        return found

    # 1: what waits?  6: which kinds of dead letters?  10: who stopped what?  12: is it healthy?
    # 2 and 11: why does it not run, what became of it, is asked by its id.
    shown = visitor().shown
    for said in (
        'data-queue="celery"',
        "CardDeclined",
        "a new price list",
        'id="desk-findings-title"',
        f'action="{LIST}tasks/"',
    ):
        assert said in shown
    assert 'data-kind="eta"' in page(client.get(f"{LIST}tasks/", {"id": "later"}, follow=True))
    # 3 and 4: what runs where, and who lives?  5: what was lost, and why?
    assert "w1@here: alive" in visitor("Workers").shown
    assert "CardDeclined" in visitor("desk-to-groups").shown

    # 7: one kind goes back, five a second; how many is said before.
    found = visitor("shop.bill", "desk-replay-all")
    assert 'data-total="2"' in found.shown
    found.press(rate="5")
    assert (found.clicks, desk.letters.count()) == (4, 0)
    # 8: one alone goes back.
    put("card-3", "CardDeclined: 4711")
    found = visitor("shop.bill", "card-3", "desk-replay")
    found.press()
    assert (found.clicks, desk.letters.count()) == (5, 0)
    # 9 and 14: a task is stopped everywhere, and a worker is taken out.
    for kind, target in (("strike", "shop.bill"), ("drain", "w1@here")):
        found = visitor("Orders", "desk-order")
        assert f"{kind} {target}" in found.press(kind=kind, target=target, for_seconds="15m")
        assert (found.clicks, "Resume" in found.shown) == (4, True)
    assert "alive, drained" in visitor("Workers").shown
