"""What a server is asked, as MONITOR tells it: all calls of scripts of one namespace, in order."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from redis import exceptions as errors

from celery_reliable.ledger import Ledger
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.caller import no_answer, refusal_of
from celery_reliable.ledger.scripts import Script, names, script, together
from proof.live.takings import Called, Takings

__all__ = ["Seen", "Watch"]

_LINE = re.compile(rb"^(\d+)\.(\d+) \[\d+ (\S+?)\] (.*)$", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_MEANT = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
#: What a process does that takes its own messages.
_TAKING = "take"
#: A server that says nothing for so long is asked whether the time is over.
_TURN_SECONDS = 0.5


class Seen(NamedTuple):
    """A call of one script, or of two as one: each with its keys and arguments; and its writes.

    A call of ``take`` is told as the calls that it made, apart from what went before it in
    the same step.
    """

    at_us: int
    calls: tuple[Called, ...]
    writes: tuple[tuple[str, ...], ...]


class Watch:
    """Watches a ledger's server for a while.

    It costs the server about as much as its clients' commands do, as long as it goes on.
    *taking*: the script of the broker's by which processes take their own messages.
    """

    def __init__(self, ledger: Ledger, *, taking: str) -> None:
        self._ledger = ledger
        self._client: Any = ledger.connector.client()
        self._prefix = ledger.keys.none.removesuffix("none")
        self._scripts = _known(taking_script(taking))
        self._takings = Takings()
        #: What the server held before the first call: `hashes`, and when `leases` run out.
        self.held: dict[str, Any] = {}

    def calls(self, seconds: float) -> Iterator[Seen]:
        """Yield each call of the next *seconds*.

        Raises LedgerForbidden where the user may not MONITOR, and LedgerUnavailable when the
        connection ends, as it does when this reads more slowly than the server writes.
        """
        shown = self._ledger.connector.shown
        connection = self._client.connection_pool.make_connection()
        try:
            connection.connect()
            connection.send_command("MONITOR")
            connection.read_response(disable_decoding=True)
            marker = secrets.token_hex(8)
            self.held = self._read(marker)
            yield from self._grouped(self._lines(connection, seconds), marker.encode())
        except (errors.RedisError, OSError) as exc:
            refusal = refusal_of(exc, "MONITOR", shown)
            if refusal is not None:
                raise refusal from exc
            raise no_answer(exc, "MONITOR", shown) from exc
        finally:
            connection.disconnect()
            self._client.close()

    def _read(self, marker: str) -> dict[str, Any]:
        """Read what has to be known before the first call, in one step."""
        keys = self._ledger.keys
        workers = [one.decode() for one in self._client.zrange(keys.workers, 0, -1)]
        hashes = [keys.meta, keys.clock, keys.orders]
        for one in workers:
            hashes += [keys.worker(one), keys.claims(one)]
            hashes += [f"{keys.begin}{kind}:{one}" for kind in ("taken", "stops")]
        pipe = self._client.pipeline(transaction=True)
        pipe.hget(keys.meta, marker)
        pipe.zrange(keys.workers, 0, -1, withscores=True)
        for name in hashes:
            pipe.hgetall(name)
        _, leases, *values = pipe.execute()
        return {
            "leases": {_text(one): until for one, until in leases},
            "hashes": {
                name: {_text(k): _text(v) for k, v in value.items()}
                for name, value in zip(hashes, values, strict=True)
            },
        }

    def _lines(self, connection: Any, seconds: float) -> Iterator[bytes]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if connection.can_read(timeout=_TURN_SECONDS):
                yield connection.read_response(disable_decoding=True)

    def _grouped(self, lines: Iterator[bytes], marker: bytes) -> Iterator[Seen]:
        """Put what a script writes behind its call."""
        has_begun, call, writes = False, None, []
        for line in lines:
            has_begun = has_begun or marker in line
            found = _LINE.match(line)
            if not has_begun or found is None:
                continue
            words = tuple(_plain(word) for word in _WORD.findall(found[4]))
            if found[3] == b"lua":
                if call is not None and words:
                    writes.append(words)
                continue
            # Each script asks something. One that did not is unknown to the server: it comes anew.
            if call is not None and writes:
                yield from self._seen(*call, tuple(writes))
            named = self._named(words)
            call = (int(found[1]) * 1_000_000 + int(found[2]), named) if named else None
            writes = []

    def _seen(
        self,
        at_us: int,
        named: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
        writes: tuple[tuple[str, ...], ...],
    ) -> Iterator[Seen]:
        """Yield what a command called, with what it wrote."""
        called, keys, args = named
        calls = _divided(called, keys, args)
        if called[-1] != _TAKING:
            yield Seen(at_us, calls, writes)
            return
        _, keys, args = calls[-1]
        n_before = self._takings.begins(keys, args, writes)
        if calls[:-1]:
            yield Seen(at_us, calls[:-1], writes[:n_before])
        calls, writes = self._takings.taken_apart(keys, args, writes[n_before:])
        if calls:
            yield Seen(at_us, calls, writes)

    def _named(
        self, words: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None:
        """Return the names of a command's scripts, its keys and its arguments; None for one that is
        none of this namespace's.
        """
        if words[0].upper() not in ("EVALSHA", "EVAL") or not "".join(words[2:3]).isdecimal():
            return None
        n_keys = int(words[2])
        keys, args = words[3 : 3 + n_keys], words[3 + n_keys :]
        if not any(key.startswith(self._prefix) for key in keys):
            return None
        return self._scripts.get(words[1], ("?",)), keys, args


def _divided(
    names: tuple[str, ...], keys: tuple[str, ...], args: tuple[str, ...]
) -> tuple[Called, ...]:
    """Return the calls of scripts that were sent as one, as `scripts.together` has them."""
    *first, last = names
    if not first:
        return ((last, keys, args),)
    n_keys, n_args = int(args[-2]), int(args[-1])
    before = _divided(tuple(first), keys[:n_keys], args[:n_args])
    return (*before, (last, keys[n_keys:], args[n_args:-2]))


def _known(taking: Script) -> dict[str, tuple[str, ...]]:
    """Return the names of scripts, alone and together, by their digest and by their text."""
    found: dict[str, tuple[str, ...]] = {}

    def add(one: Script, *called: str) -> None:
        found[one.sha] = found[one.text] = called

    for name in names():
        add(script(name), name)
    for first, second in (("wait", "claim"), ("claim", "place")):
        add(together(script(first), script(second)), first, second)
    add(together(script("settle"), taking), "settle", _TAKING)
    add(taking, _TAKING)
    return found


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _plain(word: bytes) -> str:
    """Return a word as it was before MONITOR escaped it."""

    def meant(found: re.Match[bytes]) -> bytes:
        said = found[1]
        return bytes([int(said[1:], 16)]) if len(said) == 3 else _MEANT.get(said, said)

    return _text(_ESCAPED.sub(meant, word) if b"\\" in word else word)
