"""The mutants of a Lua script: each condition negated once, each write left out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tree_sitter_lua
from tree_sitter import Language, Node, Parser

__all__ = ["Mutant", "all_mutants", "mutants", "of_text", "path", "source"]

_PACKAGE = Path(__file__).parents[2] / "celery_reliable"

#: Where the package has its scripts.
FOLDERS = ("ledger", "broker")

_PARSER = Parser(Language(tree_sitter_lua.language()))

_CALLS = (b"redis.call", b"redis.pcall")

#: The commands that change nothing, or only which database is meant.
_READS = frozenset(
    {"EXISTS", "GET", "INFO", "LLEN", "LRANGE", "PTTL", "SELECT", "TIME", "XREVRANGE"}
    | {"HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET"}
    | {"ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE"}
    | {"ZREVRANGE", "ZSCORE"}
)

#: What a write that is asked for its reply answers without having been done: that it did something.
_DONE = b"1"


@dataclass(frozen=True)
class Mutant:
    """One script with one fault.

    *key* names the fault by what stands there, and not by its line, so that it stays the same when
    other lines change: ``ledger/claim: if state == 'dead'``; the second of the same text ends with
    ``(2)``.
    """

    key: str
    folder: str
    script: str
    line: int
    text: str


def all_mutants() -> Iterator[Mutant]:
    """Yield the mutants of all scripts of the package."""
    for folder in FOLDERS:
        for file in sorted((_PACKAGE / folder / "lua").glob("*.lua")):
            yield from mutants(folder, file.stem)


def mutants(folder: str, script: str) -> list[Mutant]:
    """Return all mutants of a script of the package, in the order of the text."""
    return of_text(folder, script, source(folder, script))


def source(folder: str, script: str) -> bytes:
    """Return the text of a script of the package."""
    return path(folder, script).read_bytes()


def path(folder: str, script: str) -> Path:
    """Return the file of a script of the package."""
    return _PACKAGE / folder / "lua" / f"{script}.lua"


def of_text(folder: str, script: str, text: bytes) -> list[Mutant]:
    """Return all mutants of this text of a script."""
    found = []
    seen: Counter[str] = Counter()
    for what, node, instead in _faults(_PARSER.parse(text).root_node):
        mutated = text[: node.start_byte] + instead + text[node.end_byte :]
        key = f"{folder}/{script}: {what}"
        seen[key] += 1
        if seen[key] > 1:
            key = f"{key} ({seen[key]})"
        line = node.start_point[0] + 1
        found.append(Mutant(key, folder, script, line, mutated.decode()))
    return found


def _faults(node: Node) -> Iterator[tuple[str, Node, bytes]]:
    """Yield what is mutated, where, and what stands there instead."""
    if node.type in ("if_statement", "elseif_statement"):
        condition = node.child_by_field_name("condition")
        assert condition is not None
        yield f"if {_one_line(condition)}", condition, b"not (%s)" % (condition.text or b"")
    elif _is_write(node):
        assert node.parent is not None
        is_statement = node.parent.type in ("block", "chunk")
        yield _one_line(node), node, b"do end" if is_statement else _DONE
    for child in node.children:
        yield from _faults(child)


def _is_write(node: Node) -> bool:
    if node.type != "function_call":
        return False
    name, arguments = (node.child_by_field_name(field) for field in ("name", "arguments"))
    if name is None or name.text not in _CALLS or arguments is None:
        return False
    command = arguments.named_children[0]
    # A command that is computed is taken for a write.
    return command.type != "string" or _one_line(command).strip("'\"").upper() not in _READS


def _one_line(node: Node) -> str:
    assert node.text is not None
    return " ".join(node.text.decode().split())
