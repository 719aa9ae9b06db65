"""What the README says is what is there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from celery_reliable import ReliableConfig, ReliableTask

PAGES = ("CONTRIBUTING.rst",)
ROOT = Path(__file__).resolve().parent.parent.parent
README, CONTRIBUTING = ((ROOT / name).read_text() for name in ("README.rst", "CONTRIBUTING.rst"))


def rows(section: str) -> dict[str, str]:
    """Return name and default of each row of the table in one section."""
    text = README.split(f"\n{section}\n===", 1)[1]
    found = re.findall(
        r"^   \* - ``(\w+)``\n     - (.+)$", text.split("\n====", 1)[0], re.MULTILINE
    )
    return dict(found)


def test_every_setting_is_in_the_table_with_its_default() -> None:
    config = ReliableConfig()
    words = {
        "REDIS_URL": "the broker's",
        "CACHE": "none",
        "NAMESPACE": f'``"{config.namespace}"``',
        "DEAD_LETTER_SECONDS": f"{config.dead_letter_seconds / 86400:g} days",
        "OUTBOX": f"``{config.outbox}``",
    }

    defaults = {field.name.upper(): getattr(config, field.name) for field in fields(config)}

    expected = {
        name: words[name] if name in words else str(default).removesuffix(".0")
        for name, default in defaults.items()
    }

    assert rows("Settings") == expected


def test_every_option_is_there_with_its_default() -> None:
    defaults = {
        name: value.strip("`").strip('"') for name, value in rows("Options of a task").items()
    }

    assert defaults == {name: str(getattr(ReliableTask, name)) for name in defaults}
    assert len(defaults) == 7


@pytest.mark.parametrize("block", re.findall(r"code-block:: python\n\n((?:    .*\n|\n)+)", README))
def test_every_block_of_python_compiles(block: str) -> None:
    source = re.sub(r"^    ", "", block, flags=re.MULTILINE)

    compile(source, "README.rst", "exec")


def test_the_two_commands_are_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text()

    for command in ("tox run -e demo", "tox run"):
        assert command == "tox run -e demo" or f"\n    {command}\n" in CONTRIBUTING
        assert f"\n    {command}\n" in README
        assert re.search(rf"^{command}(?: |$)", ci, re.MULTILINE), command
