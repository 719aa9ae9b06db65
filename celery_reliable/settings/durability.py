"""What a power cut or a failover of the ledger's server would lose.

Nothing here talks to a server.  A server that hides the facts gets a finding that says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from celery_reliable.model import Finding
from celery_reliable.settings.checks import ServerFacts

__all__ = ["check_durability"]

_AOF = (
    "Set `appendonly yes` in redis.conf (and `appendfsync always` where not even a second may go)."
)


def check_durability(facts: ServerFacts) -> list[Finding]:
    """Return a finding for each way in which this server may lose what it has acknowledged."""
    return [*_on_disk(facts), *_at_failover(facts)]


def _on_disk(facts: ServerFacts) -> Iterator[Finding]:
    if facts.appendonly:
        yield from _with_file(facts)
    elif facts.save is None or facts.appendonly is None:
        if facts.appendonly is None:
            said = "does not tell whether it writes an append-only file, nor"
        else:
            said = "writes no append-only file, and does not tell"
        yield Finding(
            "celery_reliable.redis_durability_unknown",
            "warning",
            f"The ledger's Redis {said} its snapshot rule (INFO, CONFIG GET save): what a power "
            "cut would cost is not known, and may be every task.",
            f"{_AOF} Or allow CONFIG GET, to be told.",
        )
    elif not facts.save.strip(' "'):
        yield Finding(
            "celery_reliable.redis_not_durable",
            "warning",
            "The ledger's Redis writes neither an append-only file nor snapshots: when it "
            "restarts, every task is gone. A task is as durable as the Redis that holds it.",
            _AOF,
        )
    else:
        yield Finding(
            "celery_reliable.redis_snapshots_only",
            "warning",
            f"The ledger's Redis writes snapshots only (save {facts.save.strip()}): a power cut, "
            f"or a kill of the server, costs {_since_snapshot(facts.save)}.",
            _AOF,
        )


def _with_file(facts: ServerFacts) -> Iterator[Finding]:
    if facts.appendfsync == "always":
        return
    costs = {
        "everysec": "the last second's publications, two at the most",
        "no": "publications of half a minute or more, as the system decides when to write",
    }
    cost = costs.get(facts.appendfsync or "", "nobody knows how much: it hides appendfsync")
    yield Finding(
        "celery_reliable.redis_loses_seconds",
        "warning" if facts.appendfsync == "no" else "info",
        f"The ledger's Redis has appendfsync {facts.appendfsync or '(not told)'}: a power cut "
        f"costs {cost}.",
        "Set `appendfsync always` where that is too much; it costs throughput.",
    )


def _since_snapshot(save: str) -> str:
    """Say what was not yet in the last snapshot, by a rule such as "3600 1 300 100"."""
    numbers = [int(word) for word in save.split() if word.isdecimal()]
    rules = sorted(zip(numbers[1::2], numbers[::2], strict=False))
    if not rules:
        return "what came after the last one"
    changes, seconds = rules[0]
    cost = f"publications of up to {seconds} seconds"
    if changes > 1:
        cost += f", and of any time in which there were fewer than {changes} changes"
    return cost


def _at_failover(facts: ServerFacts) -> Iterator[Finding]:
    if facts.min_replicas != 0 or not (facts.has_sentinel or facts.replicas):
        return
    yield Finding(
        "celery_reliable.failover_loses",
        "warning",
        "The ledger's Redis may fail over to a replica, and its min-replicas-to-write is 0: what "
        "it takes after that, until it hears of it (some ten seconds of publications, also when "
        "the failover was planned), is lost.",
        "Set `min-replicas-to-write 1` and `min-replicas-max-lag 3` on all of them.",
    )
