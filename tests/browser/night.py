"""What fails in the shop while nobody looks."""

from __future__ import annotations

from contextlib import suppress

from celery import Celery

from celery_reliable.operations import Desk, Wait
from tests.browser.shop.factory import MENDED, SECRET
from tests.support.waiting import wait_for

_NIGHT_SECONDS = 60.0


class Night:
    """Publishes, and waits until the worker has put all of it aside."""

    def __init__(self, shop: Celery, desk: Desk) -> None:
        self.shop = shop
        self.desk = desk

    def charges(self, count: int, first: int = 1000) -> list[str]:
        """So many charges, while the payments do not answer."""
        return self._publish("billing.charge", [(first + n, SECRET) for n in range(count)])

    def refunds(self, count: int, first: int = 500) -> list[str]:
        """So many refunds with an amount that is no number."""
        return self._publish("billing.refund", [(first + n, "12,50") for n in range(count)])

    def picture(self) -> str:
        """A picture that kills whoever looks at it."""
        return self._publish("images.resize", [("cats.png",)])[0]

    def count_twice(self, shelf: str) -> tuple[str, str]:
        """A count that does not end, and one that waits for the same shelf."""
        first = self._send("stock.count", shelf)
        # It runs before it has its object.
        wait_for(
            lambda: first in {one.holders[0].task_id for one in self.desk.objects.page().items},
            _NIGHT_SECONDS,
            "the first count to have the shelf",
        )
        second = self._send("stock.count", shelf)
        with suppress(AssertionError):
            wait_for(
                lambda: self.desk.tasks.get(second).why.kind is Wait.OBJECT,
                _NIGHT_SECONDS,
                "the second count to wait for the shelf",
            )
        why = self.desk.tasks.get(second).why
        assert why.kind is Wait.OBJECT, why
        return first, second

    def remind_later(self, seconds: float) -> str:
        """A reminder that waits for its time; it is called off after the test."""
        return self._send("mail.remind", 12, countdown=seconds)

    def refunded(self) -> set[int]:
        """The orders that were refunded."""
        return {int(order) for order in self.shop.own.smembers("refunded")}

    def _send(self, name: str, *args: object, **options: object) -> str:
        return str(self.shop.tasks[name].apply_async(args, **options).id)

    def mend(self) -> None:
        """Let the payments answer again."""
        self.shop.own.set(MENDED, 1)

    def charged(self) -> set[int]:
        """The orders that were charged."""
        return {int(order) for order in self.shop.own.smembers("charged")}

    def _publish(self, name: str, calls: list[tuple[object, ...]]) -> list[str]:
        before = self.desk.letters.count()
        task = self.shop.tasks[name]
        ids = [str(task.apply_async(call).id) for call in calls]
        wait_for(
            lambda: self.desk.letters.count() == before + len(ids),
            _NIGHT_SECONDS,
            f"{len(ids)} dead letters of {name}",
        )
        return ids
