"""What an attempt has published once is not recorded again where its record was left."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from celery_reliable.context import RunningAttempt, running
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.model import Claim
from celery_reliable.publishing.errors import PublishUnknown
from celery_reliable.publishing.publication import is_left, is_send_given_up


class Ledger:
    """One that cannot withdraw, and finds what it is told."""

    def __init__(self, *, is_undone: bool) -> None:
        self.record: object | None = object()
        self.is_refusing = False
        self._is_undone = is_undone

    def withdraw(self, *_: Any, **__: Any) -> None:
        raise LedgerUnavailable("away", is_undone=self._is_undone)

    def find(self, task_id: str, **_: Any) -> object | None:
        if self.is_refusing:
            raise LedgerRefused("no right")
        return self.record


@pytest.fixture
def attempt() -> Iterator[RunningAttempt]:
    """The attempt that publishes."""
    found = RunningAttempt(Claim("parent", 1, "one@host/1.0", "token"))
    token = running.set(found)
    yield found
    running.reset(token)


def publication_of(ledger: Ledger) -> Any:
    config = SimpleNamespace(outbox=False)
    reliable = SimpleNamespace(config=config, ledger=ledger)
    return SimpleNamespace(ref=SimpleNamespace(name="task", id="id"), reliable=reliable, epoch="e")


@pytest.mark.parametrize(
    ("is_undone", "is_there", "is_to_stay"),
    [
        (True, True, True),
        # Nobody has withdrawn it: it has run, and ended.
        (True, False, True),
        (False, True, True),
        # It may have been withdrawn.
        (False, False, False),
    ],
)
def test_it_is_there_or_has_ended(
    attempt: RunningAttempt, is_undone: bool, is_there: bool, is_to_stay: bool
) -> None:
    ledger = Ledger(is_undone=is_undone)
    publication = publication_of(ledger)
    assert not is_left(publication)
    with pytest.raises(PublishUnknown):
        is_send_given_up(publication, OSError("refused"))
    if not is_there:
        ledger.record = None

    assert is_left(publication) is is_to_stay
    # Once is enough: whoever publishes it again after that means another task.
    assert not is_left(publication)


def test_who_is_refused_may_try_again(attempt: RunningAttempt) -> None:
    ledger = Ledger(is_undone=True)
    publication = publication_of(ledger)
    with pytest.raises(PublishUnknown):
        is_send_given_up(publication, OSError("refused"))
    ledger.is_refusing = True
    with pytest.raises(LedgerRefused):
        is_left(publication)
    ledger.is_refusing = False

    assert is_left(publication)


def test_who_publishes_outside_of_attempts_has_been_told() -> None:
    publication = publication_of(Ledger(is_undone=True))
    with pytest.raises(PublishUnknown):
        is_send_given_up(publication, OSError("refused"))

    assert not is_left(publication)
