"""What CI says of what is released: that nothing in it is known to be vulnerable, and that anybody
who builds it gets the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import tarfile
from pathlib import Path
from typing import Any

import pytest

import celery_reliable
from celery_reliable.version import __version__
from tests.support.audit import KNOWN, OURS, verdict

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
        (None, WELL, 0, KNOWN),
        (KNOWN_FOUND, None, 0, "NOT AUDITED"),
    ],
)
def test_an_audit_fails_for_what_is_known_and_says_when_nothing_is(
    known: Any, found: Any, code: int, says: str
) -> None:
    ended, said = verdict(known, found)

    assert ended == code
    assert says in said
    assert ("No known" in said) == (found is WELL and known is KNOWN_FOUND)


def reproducible() -> Any:
    spec = importlib.util.spec_from_file_location(
        "reproducible", ROOT / "build_backend" / "reproducible.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def archive(folder: Path, when: int, umask: int, owner: str, *, backwards: bool) -> Path:
    """An sdist as somebody makes it."""
    path = folder / "it.tar.gz"
    names = sorted(["it/a.py", "it/run", "it/b.py"], reverse=backwards)
    with (
        gzip.GzipFile(path, "wb", mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in names:
            one = tarfile.TarInfo(name)
            one.mtime = when + 0.25  # type: ignore[assignment]
            one.mode = (0o777 if name == "it/run" else 0o666) & ~umask
            one.uname = owner
            one.uid = len(owner)
            tar.addfile(one)
    return path


def test_an_sdist_is_the_same_whoever_builds_it_and_whenever(tmp_path: Path) -> None:
    found = set()
    for number, (umask, owner) in enumerate([(0o022, "root"), (0o077, "somebody")]):
        folder = tmp_path / owner
        folder.mkdir()
        path = archive(folder, 1_700_000_000 + number, umask, owner, backwards=bool(number))
        reproducible().even_sdist(path, 1_600_000_000)
        found.add(hashlib.sha256(path.read_bytes()).hexdigest())
        with tarfile.open(path) as tar:
            assert {one.name: one.mode for one in tar} == {
                "it/a.py": 0o644,
                "it/b.py": 0o644,
                "it/run": 0o755,
            }

    assert len(found) == 1


def test_the_release_is_named_in_one_place_and_has_its_section() -> None:
    assert celery_reliable.__version__ == __version__
    assert "version = attr: celery_reliable.version.__version__" in (ROOT / "setup.cfg").read_text(
        "utf-8"
    )
    lines = (ROOT / "CHANGELOG.rst").read_text("utf-8").splitlines()
    sections = [lines[n - 1] for n, line in enumerate(lines) if line and set(line) == {"-"}]
    assert __version__ in [one.partition(" ")[0] for one in sections]
