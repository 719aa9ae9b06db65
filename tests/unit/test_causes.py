"""What is read of the line that a history has of a loss."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.groups import Death


@pytest.mark.parametrize(
    ("line", "death", "kind"),
    [
        (
            "child_lost: signal 9 (SIGKILL), pid 7, out of memory",
            Death("child_lost", "SIGKILL", None, True, 7),
            "child_lost, SIGKILL, out of memory",
        ),
        (
            "child_lost: exitcode 70, pid 7",
            Death("child_lost", "", 70, False, 7),
            "child_lost, exit code 70",
        ),
        ("child_lost: its process is gone", Death("child_lost"), "child_lost"),
        (
            "worker_lost: connection, pid 12; a suspect was charged",
            Death("worker_lost", pid=12),
            "worker_lost",
        ),
        ("worker_lost: lapsed, pid ?", Death("worker_lost"), "worker_lost"),
        ("stuck", Death("stuck"), "stuck"),
        # An exception's text is anybody's.
        ("no_outcome: Error: signal 9 (SIGKILL), pid 7", Death("no_outcome"), "no_outcome"),
        ("ValueError: signal 9 (SIGKILL)", Death(), ""),
        ("", Death(), ""),
    ],
)
def test_a_line_is_read(line: str, death: Death, kind: str) -> None:
    assert Death.of(line) == death
    assert str(death) == kind
