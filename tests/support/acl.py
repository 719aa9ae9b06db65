"""A user of Redis who may do what the documentation says he needs, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["granted", "printed_rule"]

_PAGE = Path(__file__).parents[2] / "docs" / "security.rst"
_BEGIN = "    ACL SETUSER app on >password "


def printed_rule() -> list[str]:
    """The words of the page's rule, after the user's name and password."""
    _, found, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    assert found, "the page prints no rule for a user of Redis"
    return rest.partition("\n\n")[0].split()


def granted(
    client: Any,
    *,
    namespace: str = "reliable",
    without: Iterable[str] = (),
    more: Iterable[str] = (),
) -> str:
    """Make the page's user at *client*'s server, or change him; return his URL.

    *without* are words of the rule that he is not given, *more* what he is given besides.
    """
    rule = printed_rule()
    refused = set(without)
    assert refused <= set(rule), refused - set(rule)
    words = [
        word.replace("{reliable:0}", f"{{{namespace}:0}}") for word in rule if word not in refused
    ]
    client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">password", *words, *more)
    where = client.connection_pool.connection_kwargs
    return f"redis://app:password@127.0.0.1:{where['port']}/{where.get('db') or 0}"
