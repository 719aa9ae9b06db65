"""What CI says of what is known to be vulnerable."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.audit import OURS, verdict

BUG = {"id": "PYSEC-1", "fix_versions": ["2"]}
KNOWN_FOUND = {"dependencies": [{"name": "jinja2", "version": "2.10", "vulns": [BUG]}]}
UNKNOWN = {"dependencies": [{"name": "jinja2", "skip_reason": "not found on PyPI"}]}
WELL = {
    "dependencies": [
        {"name": "celery", "version": "5.7.0", "vulns": []},
        {"name": OURS, "skip_reason": "not found on PyPI"},
    ]
}
SICK = {"dependencies": [{"name": "kombu", "version": "1", "vulns": [BUG]}]}


@pytest.mark.parametrize(
    ("known", "found", "code", "says"),
    [
        (KNOWN_FOUND, WELL, 0, "1 packages"),
        (KNOWN_FOUND, SICK, 1, "kombu 1: PYSEC-1, mended in 2"),
        (KNOWN_FOUND, UNKNOWN, 1, "Not looked up"),
        # Nobody is told that all is well by a database that knows nothing.
        (UNKNOWN, WELL, 0, "NOT AUDITED"),
    ],
)
def test_an_audit_fails_for_what_is_known_and_says_when_nothing_is(
    known: Any, found: Any, code: int, says: str
) -> None:
    ended, said = verdict(known, found)

    assert ended == code
    assert says in said
    assert ("No known" in said) == (found is WELL and known is KNOWN_FOUND)
