"""A unit test has no server."""

from __future__ import annotations

import pytest

from celery_reliable import events


@pytest.fixture(autouse=True)
def _no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note in no ledger what is told."""
    monkeypatch.setattr(events.Event, "_note", lambda *_: None)


@pytest.fixture
def start_redis() -> None:
    """Refuse to start one, for whatever fixture asks for it."""
    pytest.fail("a test that needs a Redis is one of tests/ledger")


@pytest.fixture
def start_rabbit() -> None:
    """Refuse to start one."""
    pytest.fail("a test that needs a RabbitMQ is one of tests/integration")


@pytest.fixture
def shared_redis() -> None:
    """Refuse to share one."""
    pytest.fail("a test that needs a Redis is one of tests/ledger")
