"""What the page on compatibility says is allowed and run is what setup.cfg, tox.ini and CI have."""

from __future__ import annotations

import re
from configparser import ConfigParser

from tests.docs.blocks import ROOT, page_path

TEXT = page_path("compatibility.rst").read_text("utf-8")
CI = (ROOT / ".ci" / "run").read_text("utf-8")


def config(name: str) -> ConfigParser:
    found = ConfigParser(interpolation=None)
    found.read(ROOT / name)
    return found


def cells(what: str) -> list[str]:
    """The cells of a row of the table."""
    row = re.search(rf"^   \* - {what}\n((?:     .*\n)+)", TEXT, re.MULTILINE)
    assert row, what
    return [
        " ".join(cell.split()) for cell in re.split(r"^     - ", row[1], flags=re.MULTILINE)[1:]
    ]


def test_what_is_allowed_is_what_is_installed() -> None:
    options = config("setup.cfg")["options"]
    least = dict(
        re.findall(r"^(\w+)(?:\[redis\])?>=([\d.]+)", options["install_requires"], re.MULTILINE)
    )

    assert cells("Python")[0] == f"{options['python_requires'].strip('>=')} and later"
    for name, what in (("celery", "Celery"), ("kombu", "kombu"), ("redis", "redis-py")):
        assert cells(what)[0] == f"{least[name]} and later"


def test_what_ci_runs_is_what_it_says() -> None:
    tox = config("tox.ini")
    oldest = tox["testenv:oldest"]["deps"]

    for what, package in (("Celery", "celery"), ("kombu", "kombu"), ("redis-py", "redis")):
        pinned = re.search(rf"^{package}==([\d.]+)$", oldest, re.MULTILINE)
        assert pinned
        assert pinned[1] in cells(what)[1]
    assert "django==4.2" in oldest
    assert "4.2" in cells("Django")[1]
    assert "redis>=7,<8" in tox["testenv:apart"]["deps"]
    assert "hiredis" in tox["testenv:apart"]["deps"]
    assert "hiredis" not in oldest
    for env in ("oldest", "apart", "pool", "unit-py313", "environments"):
        assert re.search(rf"^(?:tox run -e|together) (?:\S+,)?{env}\b", CI, re.MULTILINE), env
    for env in re.findall(r"tox run -e ([\w-]+)", TEXT):
        assert f"[testenv:{env}]" in (ROOT / "tox.ini").read_text() or env.startswith("all-py3")
