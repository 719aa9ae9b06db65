"""A user of Redis who may do what the README says he needs, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["granted", "readme_rule"]

_README = Path(__file__).parents[2] / "README.rst"
_BEGIN = "    ACL SETUSER app on >password "


def readme_rule() -> list[str]:
    """The words of the README's rule, after the user's name and password."""
    _, found, rest = _README.read_text("utf-8").partition(_BEGIN)
    assert found, "the README prints no rule for a user of Redis"
    return rest.partition("\n\n")[0].split()


def granted(
    client: Any,
    *,
    namespace: str = "reliable",
    without: Iterable[str] = (),
    more: Iterable[str] = (),
) -> str:
    """Make the README's user at *client*'s server, or change him; return his URL.

    *without* are words of the rule that he is not given, *more* what he is given besides.
    """
    rule = readme_rule()
    refused = set(without)
    assert refused <= set(rule), refused - set(rule)
    words = [
        word.replace("{reliable:0}", f"{{{namespace}:0}}") for word in rule if word not in refused
    ]
    client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">password", *words, *more)
    where = client.connection_pool.connection_kwargs
    return f"redis://app:password@127.0.0.1:{where['port']}/{where.get('db') or 0}"
