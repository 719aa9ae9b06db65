"""A ledger whose calls are recorded, whatever the options of this run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proof.traces import recording


@pytest.fixture
def recorded() -> Iterator[None]:
    """All that this test asks of a ledger is recorded."""
    was_recording = recording.is_recording()
    recording.start()
    yield
    recording.stop()
    if was_recording:
        recording.start()
