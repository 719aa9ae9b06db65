"""Traces of the real scripts are accepted; changed traces and changed scripts are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import pytest
import redis

from celery_reliable.ledger import answers
from celery_reliable.model import Claim
from proof.traces import Entry, Rejected, checked, recording
from tests.ledger.scene import Scene, open_ledger
from tests.ledger.taking import Taking
from tests.ledger.test_properties import Walk
from tests.ledger.world import World
from tests.proof.scenes import GROUPS, play, scenes_of
from tests.support.acl import granted
from tests.support.traces import ACCEPTED, check_traces, read_traces


class Mutant(NamedTuple):
    """What of which script is something else, and which scenes show it."""

    script: str
    group: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the script with this fault; raises LookupError if it is not as expected."""
        if text.count(self.old) != 1:
            raise LookupError(f"{self.script} has this {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.script}: {self.old[:40]}"


MUTANTS = [
    Mutant("record", "stories", "if state and found[2] == ARGV[2] then", "if false then"),
    Mutant("record", "stories", "found[4] ~= ARGV[10] then", "false then"),
    Mutant("claim", "stories", "if found[4] == ARGV[5] then", "if false then"),
    Mutant("claim", "stories", "redis.call('HSET', KEYS[5], ARGV[1], claim)", ""),
    Mutant("claim", "claim", "elseif found[7] then", "elseif false then"),
    Mutant("claim", "claim_struck", "and not order.ended_ms", "and false"),
    Mutant("settle", "settle", "or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then", "then"),
    Mutant("settle", "stories", "redis.call('HDEL', KEYS[3], ARGV[1])", ""),
    Mutant("lose", "stories", "losses > max_losses\n", "losses >= max_losses\n"),
    Mutant("lose", "lose", "redis.call('HSET', KEYS[1], 'suspect', 'ran')", ""),
    Mutant("declare", "stories", "elseif claims == 1 then", "elseif false then"),
    Mutant("deregister", "stories", "if claims > 0 or tonumber(ARGV[2]) > 0 then", "if false then"),
    Mutant(
        "heartbeat",
        "stories",
        "'ZADD', KEYS[2], 'GT', 'CH', now_ms + ARGV[2]",
        "'ZADD', KEYS[2], 'GT', 'CH', 1",
    ),
    Mutant("resend", "resend", "if found[4] then", "if false then"),
    Mutant("bury", "stories", "redis.call('DEL', KEYS[5])", ""),
    Mutant("replay", "replay", "'losses', 0,", ""),
    Mutant("discard", "stories", "(ARGV[2] ~= '' and found[2] ~= ARGV[2])", "false"),
    Mutant("withdraw", "withdraw", "or found[3] or found[4]", ""),
    Mutant("release", "stories", "'spent', string", "'unspent', string"),
    Mutant("lock", "stories", "return {'held', value}", "value = nil"),
    Mutant(
        "unlock",
        "stories",
        "if redis.call('GET', KEYS[1]) ~= ARGV[2] .. ':' .. ARGV[1] then",
        "if false then",
    ),
    Mutant("place", "stories", "redis.call('SET', KEYS[at], attempt .. ':' .. id)", ""),
    Mutant(
        "outlive",
        "resend",
        "if redis.call('HGET', KEYS[2], 'state') == 'alive' then",
        "if false then",
    ),
    Mutant("blame", "stories", "losses, openings = losses + openings, 0", "losses = losses"),
    Mutant("acknowledge", "stories", "redis.call('HDEL', KEYS[1], ARGV[1])", ""),
    Mutant("reserve", "stories", "if moment == now_us then", "if true then"),
]


pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("recorded"),
    pytest.mark.untraced("they check their traces by themselves"),
]


@pytest.fixture
def url(shared_redis: redis.Redis) -> str:
    return granted(shared_redis, namespace="*")


@pytest.mark.parametrize("group", GROUPS)
def test_the_scenes_of_the_ledger_are_accepted(
    group: str, url: str, shared_redis: redis.Redis
) -> None:
    scenes = scenes_of(group)
    accepted = 0

    for trace in play(scenes, url, shared_redis):
        result = checked(trace)
        assert not result.uncovered
        accepted += sum(result.accepted.values())

    assert accepted > len(scenes) > 0


@pytest.mark.parametrize("seed", range(2))
def test_a_random_walk_is_accepted(
    seed: int, url: str, shared_redis: redis.Redis, record_property: Callable[[str, object], None]
) -> None:
    ledger = open_ledger(url, "walk")
    walk = Walk(World(ledger, shared_redis), Random(1000 + seed))
    for _ in range(200):
        walk.step()

    result = check_traces(shared_redis)

    ledger.close()
    assert result.accepted.total() > 200
    assert len(result.accepted) > 10
    assert not result.uncovered
    record_property(ACCEPTED, result.accepted.total())


def test_the_claims_of_a_process_that_takes_its_own_messages_are_recorded(
    shared_redis: redis.Redis,
) -> None:
    """They are made within a script of the broker's."""
    # The queues of this test have names of their own.
    ledger = open_ledger(granted(shared_redis, namespace="*", more=("~*",)), "taking")
    taking = Taking(Scene(ledger, shared_redis))
    taking.scene.start_worker("me")
    taking.put("one")
    taking.take("shift.1")
    settled = ledger.settle(Claim("one", 1, "me", "shift.1"))
    assert settled == answers.Settled()

    ledger.close()

    (trace,) = read_traces(shared_redis).values()
    (at,) = (n for n, one in enumerate(trace) if one.call.name == "claim")
    assert checked(trace).accepted["claim"] == 1
    with pytest.raises(Rejected):
        checked(dropped(trace, at))


# Changed traces.

Change = Callable[[list[Entry], int], list[Entry]]


def dropped(trace: list[Entry], at: int) -> list[Entry]:
    return trace[:at] + trace[at + 1 :]


def doubled(trace: list[Entry], at: int) -> list[Entry]:
    return trace[: at + 1] + trace[at:]


def answered_otherwise(trace: list[Entry], at: int) -> list[Entry]:
    """With the reply of another call."""
    reply = trace[at].reply
    other = next(one.reply for one in trace if one.reply != reply)
    return [*trace[:at], trace[at]._replace(reply=other), *trace[at + 1 :]]


def of_another_attempt(trace: list[Entry], at: int) -> list[Entry]:
    call = trace[at].call
    args = (call.args[0], str(int(call.args[1]) + 1), *call.args[2:])
    return [*trace[:at], trace[at]._replace(call=call._replace(args=args)), *trace[at + 1 :]]


def without_writes(trace: list[Entry], at: int) -> list[Entry]:
    return [*trace[:at], trace[at]._replace(writes=()), *trace[at + 1 :]]


def later(trace: list[Entry], at: int) -> list[Entry]:
    """Behind the next call of the same task."""
    entry = trace[at]
    to = next(n for n in range(at + 1, len(trace)) if trace[n].ids & entry.ids)
    return [*trace[:at], *trace[at + 1 : to + 1], entry, *trace[to + 1 :]]


DONE = {
    "record": "recorded", "claim": "claimed", "settle": "settled", "lose": "queued",
    "bury": "buried", "replay": "replayed", "resend": "send", "release": "released",
    "cancel": "cancelled", "withdraw": "withdrawn", "discard": "discarded", "lock": "locked",
    "place": "placed", "replace": "waiting", "declare": "declared", "acknowledge": "acknowledged",
}  # fmt: skip

#: Between them they do all that is changed here.
SHORT = (
    "record_as_attempt", "claim", "settle", "lose", "bury", "replay", "resend", "release",
    "cancel", "withdraw", "discard", "replace", "stories",
)  # fmt: skip

CHANGES: list[tuple[Change, str]] = [
    *((dropped, name) for name in ("record", "claim", "lose", "bury", "replay", "resend", "place")),
    *(
        (doubled, name)
        for name in ("settle", "cancel", "withdraw", "discard", "resend", "acknowledge")
    ),
    *((answered_otherwise, name) for name in ("record", "claim", "settle", "lose", "bury", "lock")),
    *(
        (of_another_attempt, name)
        for name in ("settle", "lose", "bury", "release", "replace", "lock")
    ),
    *((without_writes, name) for name in DONE),
    *((later, name) for name in ("claim", "record", "lose")),
]


@pytest.fixture(scope="module")
def traces() -> list[list[Entry]]:
    """Those of all scenes, once they are there."""
    return []


def is_meant(trace: Sequence[Entry], at: int, name: str, *, goes_on: bool) -> bool:
    """Whether this call did something, and somebody *goes on* with its task."""
    entry = trace[at]
    if entry.call.name != name or entry.reply is None or entry.reply[:1] != (DONE[name],):
        return False
    if not entry.ids or not goes_on:
        return bool(entry.writes)
    behind = [one for one in trace[at + 1 :] if entry.ids & one.ids and one.call.name != "by hand"]
    if name == "resend":
        # Within one millisecond it changes nothing but how often it was sent, by which the next one
        # goes.
        behind = [one for one in behind[:1] if one.call.name == name]
    elif name in ("record", "claim"):
        # Who is refused may be so without it, too.
        behind = [one for one in behind[:1] if (one.reply or ())[:1] == (DONE.get(one.call.name),)]
    return bool(entry.writes) and bool(behind)


@pytest.mark.parametrize(
    ("change", "name"), CHANGES, ids=[f"{one.__name__} {name}" for one, name in CHANGES]
)
def test_a_changed_trace_is_not_accepted(
    change: Change, name: str, traces: list[list[Entry]], url: str, shared_redis: redis.Redis
) -> None:
    if not traces:
        for group in SHORT:
            traces += play(scenes_of(group), url, shared_redis)
    found = []
    for trace in traces:
        for at in range(len(trace)):
            if not is_meant(trace, at, name, goes_on=change in (dropped, later)):
                continue
            # A message that nobody can run is buried without an attempt.
            if change is not of_another_attempt or trace[at].call.args[1].isdigit():
                found.append((trace, at))
                break

    for trace, at in found[:5]:
        checked(trace)
        with pytest.raises(Rejected):
            checked(change(trace, at))
    assert found


def test_a_server_may_refuse_a_command_and_a_script_may_not_fail(
    url: str, shared_redis: redis.Redis
) -> None:
    """Of a settlement that was refused nothing is left."""
    trace = next(
        one for one in play(scenes_of("settle"), url, shared_redis) if one[-1].reply == ("settled",)
    )

    def ended_by(why: str) -> list[Entry]:
        return [*trace[:-1], trace[-1]._replace(reply=("error", why), writes=())]

    for refusal in (
        "@user_script: 19: -OOM command not allowed when used memory > 'maxmemory'.",
        "@user_script: 19: The user executing the script can't run this command",
        "-NOPERM ACL failure in script: User a has no permissions to run the 'hset'",
    ):
        assert checked([*ended_by(refusal), trace[-1]]) == checked(trace)
    with pytest.raises(Rejected, match="a script raised"):
        checked(ended_by("@user_script: 19: attempt to perform arithmetic on a nil value"))


# Changed scripts.


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_changed_script_is_not_accepted(
    mutant: Mutant, url: str, shared_redis: redis.Redis
) -> None:
    def changed(name: str, text: str) -> str:
        return recording.recorded(name, mutant.applied(text) if name == mutant.script else text)

    recording.start(changed)

    def check_all() -> None:
        for trace in play(scenes_of(mutant.group), url, shared_redis):
            checked(trace)

    with pytest.raises(Rejected):
        check_all()
