"""Faults that the package once had, put back: the driver must find each of them.

A mutant changes the text of modules or scripts before they are loaded.  A text that is not there
any more is an error: then the mutant has to be written anew.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any

_PACKAGE = "celery_reliable"


@dataclass(frozen=True)
class Mutant:
    """One fault: what of which file is something else, and how a world shows it."""

    what: str
    #: Each with the path in the package, what is there, and what takes its place.
    changes: Sequence[tuple[str, str, str]]
    #: How the fault that a world finds is told, as a regular expression.
    shows: str
    #: What the climate of each world is made to have, so that few worlds are enough.
    kinds: tuple[str, ...] = ()
    climate: Mapping[str, Any] = field(default_factory=dict)
    #: Nothing else happens, as that could be the cause too.
    is_alone: bool = True
    #: In so many worlds it is found, and mostly in far fewer.
    n_worlds: int = 40
    #: The world that showed it last is tried first.
    tried_first: int = 0

    def applied(self, path: str, text: str) -> str:
        """Return the text of a file of the package as it is with this fault."""
        for changed, old, new in self.changes:
            if changed != path:
                continue
            if text.count(old) != 1:
                raise LookupError(f"{path} has this {text.count(old)} times: {old}")
            text = text.replace(old, new)
        return text


_SHARED = "ledger/lua/functions.lua"
#: There is more to do than workers can begin soon, and nothing else happens.
_BUSY: Mapping[str, Any] = {
    "ids": tuple("abcdefgijklm"), "tasks": ("plain", "work"), "outcomes": ("ok", "long"),
    "n_hosts": 2, "n_slots": 1, "n_steps": 400, "haste": 0.2, "idleness": 0.3,
    "longest_pause_ms": 500, "chances": {"act": 0.0, "publish": 0.1},
}  # fmt: skip

#: Many want the same few places.
_IN_LINE: Mapping[str, Any] = {
    "ids": tuple("abcdefgijklm"), "tasks": ("lined", "shared"), "outcomes": ("ok",), "n_hosts": 2,
    "n_slots": 3, "n_steps": 240, "haste": 0.6, "idleness": 0.1,
    "chances": {"act": 0.0, "publish": 0.3},
}  # fmt: skip

#: Operators give orders all the time.
_ORDERED: Mapping[str, Any] = {
    "tasks": ("work", "placed"), "outcomes": ("ok",), "n_hosts": 2, "n_steps": 320, "haste": 0.9,
    "idleness": 0.3, "longest_pause_ms": 500,
    "chances": {"act": 0.0, "publish": 0.1, "orders": 0.06},
}  # fmt: skip

#: Somebody names workers all the time, or wants a task to be run on several.
_NAMED: Mapping[str, Any] = {
    "tasks": ("work",), "outcomes": ("ok", "long"), "n_hosts": 2, "n_steps": 240,
    "chances": {"act": 0.0, "publish": 0.1, "named": 0.1},
}  # fmt: skip

#: Processes take their own messages, of which there are always some.
_IN_SHIFTS: Mapping[str, Any] = {
    "pool_names": ("prefork",), "is_apart": False, "has_shifts": True,
    "ids": tuple("abcdefgijklm"), "tasks": ("work",), "outcomes": ("ok",), "n_hosts": 2,
    "n_slots": 2, "n_steps": 240,
    "chances": {"act": 0.0, "publish": 0.3},
}  # fmt: skip

MUTANTS = {
    "two_clocks": Mutant(
        "a lost attempt is settled by a success that a worker's clock dates after its claim",
        [
            (
                "recovery/announcements.py",
                "        is_own = is_of(meta, record)\n",
                (
                    "        from datetime import datetime as moment\n"
                    "        done = moment.fromisoformat(str(meta['date_done']))\n"
                    "        is_own = done.timestamp() * 1000 >= record.claimed_ms\n"
                ),
            )
        ],
        "was accepted, and has never ended",
        ("skew", "kill_worker"),
        {
            "ids": ("a", "b"), "tasks": ("work",), "outcomes": ("ok", "long"), "n_steps": 400,
            "n_hosts": 2, "chances": {"publish": 0.1, "act": 0.0, "kill_worker": 0.03},
        },
        tried_first=5,
    ),
    "innocents": Mutant(
        "a worker's death is charged to all that it ran",
        [
            ("leases.py", "return self.charged == task_id", "return True"),
            (
                "recovery/dead_workers.py",
                '        if lease.verdict.word == "only" and self._has_unopened',
                "        if False and self._has_unopened",
            ),
        ],
        "and is innocent|losses, and 0 deaths",
        ("poison",),
        {
            "tasks": ("work",), "outcomes": ("ok", "long"), "n_slots": 3, "n_hosts": 2,
            "chances": {"act": 0.0, "publish": 0.2},
        },
        tried_first=3,
    ),
    "clock_back": Mutant(
        "after a step back nobody sweeps for as long as the step",
        [(
            _SHARED,
            "math.max(server_us + (kept[1] or 0) * 1000, (kept[2] or 0) * 1000)", "server_us",
        )],
        "does not come to rest",
        ("clock", "kill_worker"),
        is_alone=False,
        tried_first=10,
    ),
    "stuck_lock": Mutant(
        "an attempt that is taken as stuck loses its object while it runs",
        [(_SHARED, " and not still_stopping(found[3])\n", "\n")],
        "two live bodies of object",
        (),
        {
            "tasks": ("placed_brief",), "outcomes": ("ok", "long", "long"),
            "pool_names": ("threads",), "n_slots": 3, "n_steps": 240, "chances": {"publish": 0.1},
        },
        tried_first=3,
    ),
    "taken_by_a_call": Mutant(
        "a call takes an object that another task has",
        [("ledger/lua/record.lua", "return refused({'locked_by', before})", "place = ARGV.object")],
        "two live bodies of object",
        (),
        {
            "tasks": ("unique",), "outcomes": ("ok", "ok", "long"), "n_hosts": 2,
            "chances": {"act": 0.0, "publish": 0.1},
        },
    ),
    "stuck_note": Mutant(
        "what is called off or discarded takes the note along that something of it still runs",
        [(_SHARED, "  if is_stopping then\n", "  if false then\n")],
        "two live bodies of id",
        (),
        {
            "ids": ("a",), "tasks": ("brief",), "outcomes": ("long",), "pool_names": ("threads",),
            "n_slots": 3, "n_hosts": 2, "n_steps": 240, "idleness": 0.3,
            "chances": {"publish": 0.1, "act": 0.08},
        },
        n_worlds=80,
        tried_first=49,
    ),
    "waiting_since": Mutant(
        "the day that a canvas has counts from the publication of its host",
        [
            (
                "recovery/overdue.py",
                "now_ms - record.since_ms >",
                "now_ms - record.published_ms >",
            ),
            ("recovery/overdue.py", " and not self._lives(record)\n", "\n"),
        ],
        "is called off under its canvas",
        ("long", "freeze", "sweepers"),
        {
            "tasks": ("work",), "outcomes": ("replace",), "n_hosts": 1, "n_steps": 240,
            "chances": {"act": 0.0, "long": 0.02, "freeze": 0.06, "sweepers": 0.1},
        },
        tried_first=7,
    ),
    "unlisted": Mutant(
        "what is filed late is where nobody looks, when the broker has lost the list",
        [("broker/lua/take.lua", "if ARGV.name ~= '' then", "if false then")],
        "nobody looks into unacked:",
        ("late", "rollback", "kill_worker"),
        {
            "tasks": ("work", "plain"), "outcomes": ("ok", "long"), "n_steps": 400, "delays": 0.1,
            "chances": {
                "act": 0.0, "publish": 0.2, "late": 0.05, "rollback": 0.05, "kill_worker": 0.02,
            },
        },
    ),
    "taken_late": Mutant(
        "a late copy of a taking takes another message, and nobody hears of that",
        [(
            "broker/lua/take.lua",
            "if not item and ARGV.worker ~= '' then return 'empty' end", "",
        )],
        "has 1 losses, and 0 deaths",
        ("late",),
        {
            "tasks": ("work",), "outcomes": ("ok",), "n_hosts": 2, "n_steps": 400, "delays": 0.2,
            "chances": {"act": 0.0, "publish": 0.3, "late": 0.05},
        },
        n_worlds=500,
        tried_first=419,
    ),
    "suspended": Mutant(
        "a lease is measured by a clock that stands still while the machine is suspended",
        [(
            "clock.py",
            "return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)",
            "return time.monotonic()",
        )],
        "is dead, and surely holds its lease",
        ("suspend",),
        {
            "n_hosts": 3, "n_steps": 240, "idleness": 0.3, "longest_pause_ms": 3000,
            "chances": {"suspend": 0.02, "publish": 0.02},
        },
        tried_first=2,
    ),
    "taken_ahead": Mutant(
        "a worker takes more than it can begin",
        [(
            "broker/worker_transport.py",
            "idle: int = 0 if self._is_leaving else self.qos.unacked.worker.idle_slots()",
            "idle = _MOST_AT_ONCE",
        )],
        "waits behind what",
        (),
        _BUSY,
    ),
    "inbox_unseen": Mutant(
        "the inbox is not among the lists that are taken from",
        [(
            "broker/waiting.py",
            "found += [inbox_of(key, prefix) for key in keys]", "found += []",
        )],
        "messages in celery-reliable.inbox:",
        (),
        _IN_SHIFTS,
    ),
    "inbox_left": Mutant(
        "a message stays in an inbox for as long as the worker stands still that has moved it",
        [("broker/waiting.py", "came is not None or n_left:", "came is not None:")],
        "is idle, and celery-reliable.inbox:",
        ("freeze",),
        {
            **_IN_SHIFTS, "n_steps": 400, "haste": 0.2, "idleness": 0.3, "n_hosts": 3,
            "longest_pause_ms": 500, "chances": {"act": 0.0, "publish": 0.015, "freeze": 0.05},
        },
        n_worlds=160,
        tried_first=80,
    ),
    "inbox_of_the_gone": Mutant(
        "what a worker that is gone has left on the way from its own queue stays there",
        [("recovery/broker_view.py", "(inbox_of(one, prefix), one)", "(one,)")],
        "messages in celery-reliable.inbox:celery@",
        ("named", "renamed", "kill_worker"),
        {**_NAMED, "n_steps": 400, "chances": {"act": 0.0, "publish": 0.2, "kill_worker": 0.05}},
        tried_first=3,
    ),
    "left_and_given_back": Mutant(
        "what a shift leaves to its worker is begun by that, and goes back to its queue, too",
        [(
            "worker/running_shift.py", "            channel.deliver_all([delivery])\n",
            (
                "            channel.deliver_all([delivery])\n"
                "            channel.reliable_unacked.give_back(channel, left.tag, is_last=False)\n"
            ),
        )],
        "the plain .* runs again",
        (),
        {**_IN_SHIFTS, "tasks": ("plain", "work")},
    ),
    "anybodys": Mutant(
        "a worker begins what its message says is for others",
        [(
            "attempt/claiming.py", "if named is not None and not named.may_run(worker.nodename):",
            "if False:",
        )],
        "it is for|not on as many workers",
        ("named", "copies"),
        {**_NAMED, "chances": {"act": 0.0, "publish": 0.2, "named": 0.02, "copies": 0.1}},
        tried_first=3,
    ),
    "given_twice": Mutant(
        "a member of a run gets a worker that another member has",
        [("ledger/lua/assign.lua", "if not taken[ARGV[i]] then", "if true then")],
        "not on as many workers",
        ("named", "kill_worker"),
        _NAMED,
    ),
    "forgotten_with_claims": Mutant(
        "a worker is forgotten whose claims nobody has ended",
        [(
            "ledger/lua/deregister.lua", "if claims > 0 or tonumber(ARGV.in_unacked) > 0 then",
            "if tonumber(ARGV.in_unacked) > 0 then",
        )],
        "claims of nobody",
        # A release deregisters workers whose lease has run out while they begin something.
        ("kill_worker", "long", "sweepers"),
        {
            "tasks": ("work",), "outcomes": ("ok", "long"), "n_hosts": 2, "n_slots": 2,
            "chances": {"act": 0.1, "publish": 0.2, "kill_worker": 0.01, "long": 0.02},
        },
        n_worlds=80,
        tried_first=52,
    ),
    "out_of_line": Mutant(
        "who stands in a line last has the first place that is free",
        [(
            _SHARED, "local id = redis.call('ZRANGE', line, 0, 0)[1]",
            "local id = redis.call('ZRANGE', line, -1, -1)[1]",
        )],
        "which waits",
        (),
        _IN_LINE,
    ),
    "nobody_next": Mutant(
        "who frees a place lets nobody in",
        [(_SHARED, "    let_in(string.match(place, '^[^#]*'), nil, places)\n", "")],
        "waits for a place of .* is free",
        (),
        {**_IN_LINE, "tasks": ("single",)},
    ),
    "place_given_twice": Mutant(
        "who frees a place gives away the first, whoever has that",
        [(_SHARED, "tonumber(known), id)\n", "tonumber(known), id) or object\n")],
        "has no place of|, which waits",
        (),
        {**_IN_LINE, "tasks": ("lined",)},
    ),
    "given_and_unsent": Mutant(
        "whoever is given a place that was freed is put into no queue",
        [(_SHARED, " or redis.pcall('LPUSH', told[1], told[2])\n", " or 1\n")],
        "was given a place, and waits in no queue",
        (),
        {**_IN_LINE, "tasks": ("single", "lined")},
    ),
    "not_struck": Mutant(
        "an attempt begins though the ledger knows of a strike on its task",
        [("ledger/lua/claim.lua", "for i = FIRST.strikes", "for i = FIRST.strikes + 1")],
        "against a strike",
        ("orders",),
        _ORDERED,
        tried_first=1,
    ),
    "not_paused": Mutant(
        "a worker heeds no pause, and does not know that it is drained",
        [(
            "context.py", "return orders.of_queue(queue, self.nodename, self.ledger_ms)",
            "return None",
        )],
        "against a (pause|drain)",
        ("orders",),
        _ORDERED,
    ),
    "before_its_eta": Mutant(
        "an attempt begins as soon as its message comes, by whatever clock that was let out",
        [("attempt/claiming.py", "    if wait:\n", "    if False:\n")],
        "begins before its ETA",
        ("clock",),
        {
            "tasks": ("work",), "outcomes": ("ok",), "n_steps": 240,
            "chances": {"act": 0.0, "publish": 0.3, "clock": 0.1},
        },
        tried_first=5,
    ),
    "moment_lost": Mutant(
        "what has lost its record with the server does not wait for its ETA",
        [("attempt/claiming.py", "if moment is not None or (is_", "if (is_")],
        "begins before its ETA",
        ("rollback",),
        {
            "tasks": ("work",), "outcomes": ("ok", "retry"), "n_steps": 240,
            "chances": {"act": 0.0, "publish": 0.1, "rollback": 0.05},
        },
        n_worlds=80,
        tried_first=86,
    ),
    "shown_too_early": Mutant(
        "a request is shown of a task whose process is not known yet, and never learns of it",
        [("worker/running_shift.py", " or running.pid is None:", ":")],
        "raised KeyError",
        ("orders",),
        {
            **_IN_SHIFTS, "tasks": ("work",), "outcomes": ("ok", "long"), "n_slots": 1,
            "ids": tuple("abcdefg"),
            "chances": {"act": 0.1, "publish": 0.3, "orders": 0.2},
        },
        n_worlds=200,
        tried_first=31,
    ),
    "stopped_for_now": Mutant(
        "what was stopped as it ran runs again when its attempt is lost",
        [("ledger/lua/cancel.lua", "if ARGV.if_running ~= '' then", "if false then")],
        "it was stopped at",
        ("orders", "kill_worker"),
        {
            **_ORDERED, "outcomes": ("long",),
            "chances": {"act": 0.0, "publish": 0.1, "orders": 0.2, "kill_worker": 0.05},
        },
        tried_first=2,
    ),
}  # fmt: skip

#: Scripts that compare less than they must, by the pair of which some order has to show it.
LOOSENED = {
    "claim / claim": Mutant(
        "a task is claimed that runs",
        [("ledger/lua/claim.lua", "if state == 'running' then", "if false then")],
        "begins after attempt|two live bodies",
    ),
    "slow sweeper": Mutant(
        "an attempt is lost twice",
        [("ledger/lua/lose.lua", "refusal(unpack(found, 1, 3))", "not found[1] and {'gone'}")],
        "a has 2 losses, and 1 deaths",
    ),
}  # fmt: skip

#: The one that is put back into this process.
chosen: Mutant | None = None


def applied(path: str, text: str) -> str:
    """Return the text of a file of the package, with the fault that was put back."""
    return chosen.applied(path, text) if chosen is not None else text


class _Loader(SourceFileLoader):
    def path_stats(self, path: Any) -> Any:
        # What was compiled without the fault is not to be found, nor this ever kept.
        raise OSError(path)

    def get_data(self, path: Any) -> bytes:
        text = super().get_data(path).decode()
        return applied(str(path).rpartition(f"/{_PACKAGE}/")[2], text).encode()


class _Finder(PathFinder):
    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(f"{_PACKAGE}."):
            return None
        spec = super().find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or chosen is None:
            return spec
        if str(spec.loader.path).rpartition(f"/{_PACKAGE}/")[2] in {
            path for path, *_ in chosen.changes
        }:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def put_back(name: str, *, is_control: bool = False) -> None:
    """Put a fault back, before any module of the package is imported; *is_control*: but for the
    fault.
    """
    put_in(replace(MUTANTS[name], changes=()) if is_control else MUTANTS[name])


def put_in(mutant: Mutant) -> None:
    """Let this process have *mutant*, before any module of the package is imported."""
    global chosen
    assert _PACKAGE not in sys.modules
    chosen = mutant
    sys.meta_path.insert(0, _Finder)
