"""Results: an outcome is stored as soon as it can be, and says which attempt it is of."""

from __future__ import annotations

from celery_reliable.results.backend import (
    PatientBackend,
    fail_again,
    fail_as_buried,
    marks,
    tell_chord,
    tell_chord_patiently,
)
from celery_reliable.results.fenced import (
    NOTHING,
    is_celerys_redis,
    is_of,
    mark,
    may_have_lived_before,
    results_server_of,
    seen,
)

__all__ = [
    "NOTHING",
    "PatientBackend",
    "fail_again",
    "fail_as_buried",
    "is_celerys_redis",
    "is_of",
    "mark",
    "marks",
    "may_have_lived_before",
    "results_server_of",
    "seen",
    "tell_chord",
    "tell_chord_patiently",
]
