"""A changed trace is not accepted; those of the tests are, which are checked as they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
import redis

from celery_reliable.ledger import answers
from celery_reliable.model import Claim
from proof.traces import Entry, Rejected, checked
from tests.ledger.scene import Scene, open_ledger
from tests.ledger.taking import Taking
from tests.ledger.test_places import Line
from tests.ledger.test_properties import Walk
from tests.support.acl import granted
from tests.support.traces import read_traces

pytestmark = [
    pytest.mark.full,
    pytest.mark.usefixtures("recorded"),
    pytest.mark.untraced("they check their traces by themselves"),
]


@pytest.fixture
def url(shared_redis: redis.Redis) -> str:
    return granted(shared_redis, namespace="*")


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


def test_a_time_that_the_server_has_rounded_otherwise_is_the_one_that_counts(
    url: str, shared_redis: redis.Redis
) -> None:
    """It comes from PTTL, and whoever looks at the task then names it."""
    ledger = open_ledger(url, "rounding")
    scene = Scene(ledger, shared_redis)
    scene.start_worker("me")
    line = Line(scene)
    holder, _ = line.enter("holder", "first")
    ledger.settle(holder, keep_ms=1_000)
    due_ms = scene.seen_due("first").due_ms
    line.look("first")
    ledger.close()
    (trace,) = read_traces(shared_redis).values()

    def later(told: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(int(due_ms) + 1) if one == due_ms else one for one in told)

    changed = [
        one._replace(
            call=one.call._replace(args=later(one.call.args)),
            writes=tuple(map(later, one.writes)),
        )
        for one in trace
    ]
    assert changed != trace
    assert checked(changed) == checked(trace)


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
    "bury": "buried", "resend": "send",
    "cancel": "cancelled", "place": "placed",
    "replace": "waiting", "declare": "declared", "acknowledge": "acknowledged",
}  # fmt: skip

CHANGES: list[tuple[Change, str]] = [
    *((dropped, name) for name in ("record", "claim", "lose", "bury", "resend", "place")),
    *((doubled, name) for name in ("settle", "cancel", "resend", "acknowledge")),
    *((answered_otherwise, name) for name in ("record", "claim", "settle", "lose", "bury")),
    *((of_another_attempt, name) for name in ("settle", "lose", "bury", "replace")),
    *((without_writes, name) for name in DONE),
    *((later, name) for name in ("claim", "record", "lose")),
]


@pytest.fixture(scope="module")
def traces() -> list[list[Entry]]:
    """Those of some walks, once they are there."""
    return []


def walked(seed: int, url: str, client: redis.Redis) -> list[Entry]:
    """Return the trace of a random walk."""
    client.flushdb()
    ledger = open_ledger(url, f"walk{seed}")
    scene = Scene(ledger, client)
    for name in ("me", "other"):
        scene.start_worker(name)
    walk = Walk(scene, Random(seed), "abcd" if seed % 2 else "aaab")
    for _ in range(400):
        walk.step()
    ledger.close()
    (trace,) = read_traces(client).values()
    return trace


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
    elif name == "place":
        # The next who asks for the object finds it taken.
        said = [(one.reply or ("",))[0] for one in trace[at + 1 :] if one.call.name == name]
        asked = [one for one in said if one != "not_current"][:1]
        behind = behind if asked in (["full"], ["standing"]) else []
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
        traces += [walked(seed, url, shared_redis) for seed in range(40, 54)]
        for trace in traces:
            checked(trace)
    found = []
    for trace in traces:
        meant = [
            at
            for at in range(len(trace))
            if is_meant(trace, at, name, goes_on=change in (dropped, later))
            # A message that nobody can run is buried without an attempt.
            and (change is not of_another_attempt or trace[at].call.args[1].isdigit())
        ]
        found += [(trace, at) for at in meant[:3]]

    def is_refused(trace: list[Entry]) -> bool:
        try:
            checked(trace)
        except Rejected:
            return True
        return False

    refused = [is_refused(change(trace, at)) for trace, at in found]
    # Now and then a call is repeated, or nobody has asked for what it changed.
    assert refused.count(True) > refused.count(False)


def test_a_server_may_refuse_a_command_and_a_script_may_not_fail(
    url: str, shared_redis: redis.Redis
) -> None:
    """Of a settlement that was refused nothing is left."""
    ledger = open_ledger(url, "refusing")
    scene = Scene(ledger, shared_redis)
    scene.start_worker("me")
    ledger.settle(scene.claim(scene.publish()))
    ledger.close()
    (trace,) = read_traces(shared_redis).values()

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
