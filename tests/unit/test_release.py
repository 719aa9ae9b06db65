"""What CI says of a release: its number, and that nothing in it is known to be vulnerable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import celery_reliable
from celery_reliable.version import __version__
from tests.support.audit import OURS, verdict

ROOT = Path(__file__).parents[2]
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


def test_the_release_is_named_in_one_place_and_has_its_section() -> None:
    assert celery_reliable.__version__ == __version__
    assert "version = attr: celery_reliable.version.__version__" in (ROOT / "setup.cfg").read_text(
        "utf-8"
    )
    lines = (ROOT / "CHANGELOG.rst").read_text("utf-8").splitlines()
    sections = [lines[n - 1] for n, line in enumerate(lines) if line and set(line) == {"-"}]
    assert __version__ in [one.partition(" ")[0] for one in sections]
