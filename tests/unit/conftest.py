"""A unit test has no server."""

from __future__ import annotations

import pytest

from celery_reliable import events


@pytest.fixture(autouse=True)
def _no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note in no ledger what is told."""
    monkeypatch.setattr(events.Event, "_note", lambda *_: None)
