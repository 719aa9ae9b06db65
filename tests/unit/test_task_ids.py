"""Which ids of tasks have the form of those that are used once."""

from __future__ import annotations

import uuid

import pytest

from celery_reliable.message import looks_used_once

RANDOM = "3f2b8c1e-9d47-4a6b-8f10-2c5d7e9a1b34"


def test_what_celery_makes_is_used_once() -> None:
    assert all(looks_used_once(str(uuid.uuid4())) for _ in range(1000))
    assert looks_used_once(RANDOM)


@pytest.mark.parametrize(
    "task_id",
    [
        "",
        "order-17",
        # Of another version: of a time and a host, and of a name.
        "df65e8cc-ea2c-11f1-9082-02fc00000001",
        str(uuid.uuid5(uuid.NAMESPACE_URL, "order/17")),
        # Of another variant: nobody says that these bits are random.
        RANDOM.replace("-8f10-", "-cf10-"),
        RANDOM.upper(),
        RANDOM.replace("-", ""),
        f"{{{RANDOM}}}",
        f"urn:uuid:{RANDOM}",
        f"{RANDOM}\n",
        f"{RANDOM} of order 17",
    ],
)
def test_what_somebody_has_named_may_have_been_used_before(task_id: str) -> None:
    assert not looks_used_once(task_id)
