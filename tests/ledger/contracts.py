"""Reads a script's text: what its header promises and what its body does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

#: All that scripts may do: bounded commands on keys that they were given.
ALLOWED_COMMANDS = {
    "DEL", "EXISTS", "GET", "HDEL", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET", "HSET", "INFO",
    "LPUSH", "PEXPIRE", "PTTL", "PUBLISH", "SELECT", "SET", "TIME", "XADD", "XREVRANGE", "ZADD",
    "ZLEXCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZREM", "ZSCORE",
}  # fmt: skip
KEYLESS_COMMANDS = {"INFO", "SELECT", "TIME"}


def text_of(name: str) -> str:
    """Return a script of the ledger as it stands in its file, also where calls are recorded."""
    return resources.files("celery_reliable.ledger").joinpath(f"lua/{name}.lua").read_text("utf-8")


@dataclass(frozen=True)
class Contract:
    """A script, divided into its header comment and its body."""

    name: str
    header: str
    body: str

    @classmethod
    def read(cls, name: str) -> Contract:
        """Return that of one of the ledger's scripts."""
        return cls.of(name, text_of(name))

    @classmethod
    def of(cls, name: str, text: str) -> Contract:
        match = re.fullmatch(r"--\[\[\n(.*?)\n\]\]\n(.*)", text, re.DOTALL)
        assert match, f"{name} does not begin with its header"
        return cls(name, match[1], re.sub(r"--[^\n]*", "", match[2]))

    def slots(self, kind: str, *, in_header: bool) -> list[int]:
        """The numbers of KEYS or ARGV that are listed, in order, or used, sorted."""
        if in_header:
            return [int(n) for n in re.findall(rf"^{kind}\[(\d+)\]", self.header, re.MULTILINE)]
        return sorted({int(n) for n in re.findall(rf"\b{kind}\[(\d+)\]", self.body)})

    def section(self, title: str) -> str:
        """The text after a title of the header, with its indented continuation lines."""
        match = re.search(rf"^{title} +(.*(?:\n {{6,}}.*)*)", self.header, re.MULTILINE)
        return match[1] if match else ""

    def documented(self) -> dict[str, int | None]:
        """The replies of the header -> how many values come with each; None: any number."""
        replies = re.findall(r'\{"(\w+)"([^}]*)\}', self.section("Returns"))
        return {name: None if "..." in rest else rest.count(",") for name, rest in replies}

    def returned(self) -> dict[str, set[int | None]]:
        """The replies of the body -> how many values are given with each."""
        found: dict[str, set[int | None]] = {}
        for text in _tables_after(self.body, r"return\s*"):
            name, *values = _top_level_items(text)
            found.setdefault(name.strip("'"), set()).add(len(values))
        # A reply that grows is begun as a table, and may still be given another name.
        for text in _tables_after(self.body, r"local reply = "):
            found.setdefault(_top_level_items(text)[0].strip("'"), set()).add(None)
        for name in re.findall(r"reply\[1\] = '(\w+)'", self.body):
            found.setdefault(name, set()).add(None)
        return found

    def moves(self) -> list[str]:
        """The transitions of the header, without the remarks behind them."""
        lines = [line.strip() for line in self.section("Moves").splitlines()]
        return [re.sub(r"\s+\(.*$", "", re.sub(r"\s{2,}\(.*", "", line)) for line in lines if line]

    def commands(self) -> list[tuple[str, str]]:
        """Every command of the body with its first argument as written."""
        return re.findall(r"redis\.p?call\('(\w+)'(?:,\s*([^,)]+))?", self.body)

    def faults(self) -> list[str]:
        """Where the header and the body disagree, or the body does what no script may."""
        faults = [
            f"{kind}: header has {listed}, body uses {used}"
            for kind in ("KEYS", "ARGV")
            if (listed := self.slots(kind, in_header=True))
            != (used := self.slots(kind, in_header=False))
        ]
        is_listed = re.search(r"^ARGV\[\d+\.\.\.\]", self.header, re.MULTILINE)
        if bool(is_listed) != bool(re.search(r"#ARGV\b(?!\[)", self.body)):
            faults.append("ARGV: any number is used or listed, and not the other")
        is_listed = re.search(r"^KEYS\[\d+\.\.\.\]", self.header, re.MULTILINE)
        if bool(is_listed) != bool(re.search(r"\bKEYS\[[a-z]\w*\]", self.body)):
            faults.append("KEYS: any number is used or listed, and not the other")
        if not re.match(rf"{self.name}: \w.*[^ ]", self.header):
            faults.append("the first line does not say what it is for")
        if not self.section("Cost"):
            faults.append("no cost")
        return faults + self._reply_faults() + self._command_faults()

    def _reply_faults(self) -> list[str]:
        documented, returned = self.documented(), self.returned()
        if set(documented) != set(returned):
            return [f"replies: header has {sorted(documented)}, body gives {sorted(returned)}"]
        return [
            f"reply {name}: header has {count} values, body gives {returned[name]}"
            for name, count in documented.items()
            if returned[name] != {count}
        ]

    @property
    def _key(self) -> str:
        """How the body names a key that it was given."""
        has_more = re.search(r"^KEYS\[\d+\.\.\.\]", self.header, re.MULTILINE)
        return r"KEYS\[\w+\]" if has_more else r"KEYS\[\d+\]"

    def _command_faults(self) -> list[str]:
        faults = []
        for command, first in self.commands():
            if command not in ALLOWED_COMMANDS:
                faults.append(f"{command} is not for scripts")
            elif command not in KEYLESS_COMMANDS and not re.fullmatch(self._key, first):
                faults.append(f"{command} on {first}, which is no key that it was given")
        # What the pattern above does not read must not be there.
        if len(re.findall(r"redis\.", self.body)) != len(self.commands()):
            faults.append("a use of redis that is no plain command")
        return faults


def _tables_after(body: str, pattern: str) -> list[str]:
    """The inside of each table constructor that follows `pattern`."""
    tables = []
    for match in re.finditer(pattern + r"\{", body):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(body[end], 0)
            end += 1
        tables.append(body[match.end() : end - 1])
    return tables


def _top_level_items(text: str) -> list[str]:
    """Divide at the commas that stand in no bracket."""
    items, depth = [""], 0
    for char in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(char, 0)
        if char == "," and not depth:
            items.append("")
        else:
            items[-1] += char
    return [item.strip() for item in items]
