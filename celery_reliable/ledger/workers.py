"""Transitions of workers: their leases, their deaths and what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from celery_reliable.compat.redis import kept_connection, socket_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import schema
from celery_reliable.ledger.answers import (
    AcknowledgeAnswer,
    BeginPassAnswer,
    Begun,
    DeclareAnswer,
    Deregistered,
    EndPassAnswer,
    HeartbeatAnswer,
    LookAheadAnswer,
    RegisterAnswer,
)
from celery_reliable.ledger.caller import FORMAT, Caller, Part, clock_of, ms_of
from celery_reliable.ledger.schema import Keys
from celery_reliable.model import Claim

__all__ = [
    "Passes",
    "Workers",
    "taken_from",
    "to_stop",
]


#: For so long a worker that was away is told which claims were taken from it.
TAKEN_MS = 60 * 60 * 1000
#: After about so long a task is sent again that its worker may not run now.
ALONE_MS = 1000


def to_stop(beat: HeartbeatAnswer, worker: str) -> list[tuple[Claim, str]]:
    """Return what *worker* was told with its beat to stop, each with "stop" or "kill"."""
    found = []
    for task_id, text in _pairs(beat)[: beat.n_stops]:
        attempt, how, token = text.split(" ", 2)
        found.append((Claim(task_id, int(attempt), worker, token), how))
    return found


def taken_from(beat: HeartbeatAnswer, worker: str) -> list[Claim]:
    """Return the claims that were taken from *worker*, and that it has not acknowledged."""
    found = []
    for task_id, text in _pairs(beat)[beat.n_stops :]:
        attempt, token = text.split(" ", 1)
        found.append(Claim(task_id, int(attempt), worker, token))
    return found


def _pairs(beat: HeartbeatAnswer) -> list[tuple[str, str]]:
    told = beat.ids_and_claims
    return [*zip(told[::2], told[1::2], strict=True)]


class Workers(Part):
    """Leases of workers, and what each worker holds.  What is read may have changed when the answer
    arrives.
    """

    def __init__(self, caller: Caller, keys: Keys) -> None:
        super().__init__(caller, keys)
        #: Numbers what this process tells of its worker, so that a late copy of a call is known.
        self._numbers = count(1)

    def leases(self, begun: Begun | None = None) -> list[WorkerLease]:
        """Return the lease of each worker, also of dead ones that hold something.  *begun*: the
        pass that has begun just now, which was told who they are.
        """
        if begun is not None:
            told = begun.ids_and_times
            found = [*zip(told[::2], map(float, told[1::2]), strict=True)]
        else:
            pairs = self._caller.read(
                "leases", lambda client: client.zrange(self.keys.workers, 0, -1, withscores=True)
            )
            found = [(raw.decode(), until_ms) for raw, until_ms in pairs]
        read = self._caller.read_all(
            "leases", [("HMGET", self.keys.worker(name), *schema.LEASE_FIELDS) for name, _ in found]
        )
        return [
            schema.lease(name, int(until_ms), row)
            for (name, until_ms), row in zip(found, read, strict=True)
        ]

    def connected(self, client_ids: Iterable[str]) -> set[str] | None:
        """Return which of *client_ids* are connected to the server now; None when the server
        does not tell.
        """
        wanted = [i for i in client_ids if i.isdigit() and i != "0"]
        if not wanted:
            return set()

        def read(client: Any) -> set[str] | None:
            import redis

            try:
                rows = client.client_list(client_id=wanted)
            except redis.ResponseError:
                return None
            return {str(row["id"]) for row in rows}

        return self._caller.read("client list", read)

    def claims(self, worker: str) -> dict[str, tuple[Claim, int]]:
        """Return what *worker* runs: task id -> its claim and the pid of the process."""
        raw = self._caller.read("claims", lambda client: client.hgetall(self.keys.claims(worker)))
        return schema.claims(worker, raw)

    @property
    def connection(self) -> Any:
        """The connection of a client that was made with `single`."""
        return kept_connection(self._caller.client)

    def client_id(self, connection: Any, known_socket: Any, known_id: int) -> tuple[int, Any]:
        """Connect if necessary; return the connection's id at the server and its socket.

        Asks the server only when the socket is another one than *known_socket*.  0 when the server
        does not tell.
        """

        def ask(client: Any) -> int:
            import redis

            if socket_of(connection) is None:
                connection.connect()
            if socket_of(connection) is known_socket:
                return known_id
            try:
                return int(client.client_id())
            except redis.ResponseError:
                return 0

        found = self._caller.read("client id", ask, 0)
        return found, socket_of(connection)

    def time_ms(self) -> int:
        """Return the ledger's time in ms."""
        return ms_of(*self._caller.read_all("time", clock_of(self.keys)))

    def ahead_ms(self) -> int:
        """Return how far the ledger's clock is ahead of its server's."""
        time, kept = self._caller.read_all("time", clock_of(self.keys))
        return ms_of(time, kept) - ms_of(time, (None, None))

    def register(
        self, worker: str, *, lease_ms: int, client_id: int, facts: Mapping[str, Any]
    ) -> RegisterAnswer:
        """Give a new worker a lease of *lease_ms*."""
        return self._caller.run(
            self.calls.register(
                worker=worker,
                lease_ms=lease_ms,
                client_id=client_id,
                facts=json.dumps(dict(facts)),
                number=next(self._numbers),
                format=FORMAT,
                queue=str(facts.get("direct") or ""),
            )
        )

    def heartbeat(
        self,
        worker: str,
        *,
        lease_ms: int,
        client_id: int,
        doing: str = "",
    ) -> HeartbeatAnswer:
        """Renew the lease, and return which claims were taken or are to be stopped, and the version
        of the orders.  It is sent once.

        *doing* is what the worker does just now, as JSON, for operators.
        """
        step = self.calls.heartbeat(
            worker=worker,
            lease_ms=lease_ms,
            client_id=client_id,
            number=next(self._numbers),
            doing=doing,
        )
        return self._caller.run(step, 0)

    def acknowledge(self, claim: Claim) -> AcknowledgeAnswer:
        """Note that the worker has stopped a claim that was taken from it.

        If the task is a dead letter, its object is freed now.
        """
        step = self.calls.acknowledge(
            id=claim.task_id,
            worker=claim.worker,
            claim=f"{claim.attempt} {claim.token}",
        )
        return self._caller.run(step)

    def declare(
        self,
        lease: WorkerLease,
        cause: str,
        *,
        witness_ms: int,
        expected_ms: int | None = None,
    ) -> DeclareAnswer:
        """Declare a worker dead, and decide which of its claims is charged with that.

        Nothing is done if the worker was heard of since *lease* was read, or if the ledger's time
        is not about *expected_ms*.  *witness_ms*: for how long its connection must be gone, 0 if
        connections are not looked at.
        """
        return self._caller.run(
            self.calls.declare(
                worker=lease.worker,
                cause=cause,
                renewals=lease.renewals,
                client_id=lease.client_id,
                witness_ms=witness_ms,
                expected_ms=expected_ms,
            )
        )

    def deregister(self, worker: str, *, in_unacked: int) -> bool:
        """Forget a worker that holds nothing; False when it still holds something."""
        step = self.calls.deregister(worker=worker, in_unacked=in_unacked, taken_ms=TAKEN_MS)
        return isinstance(self._caller.run(step), Deregistered)


class Passes(Part):
    """Who runs a pass, and what the next one has to know."""

    def begin(
        self,
        nonce: str,
        *,
        interval_ms: int,
        ttl_ms: int,
        interruption_ms: int,
        lease_ms: int,
        expected_ms: int | None = None,
    ) -> BeginPassAnswer:
        """Start a pass, unless one runs, or finished less than *interval_ms* ago.

        *nonce* names the pass, which expires after *ttl_ms*.  A pause of *interruption_ms* between
        passes means that the server or all sweepers were away: then leases of *lease_ms* get time
        to be renewed.  *expected_ms*: the ledger's time as the sweeper reckons it, or None.
        """
        step = self.calls.begin_pass(
            nonce=nonce,
            interval_ms=interval_ms,
            ttl_ms=ttl_ms,
            interruption_ms=interruption_ms,
            lease_ms=lease_ms,
            expected_ms=expected_ms,
            format=FORMAT,
        )
        return self._caller.run(step, 0)

    def end(
        self,
        nonce: str,
        report: Mapping[str, Any],
        ahead_count: str = "",
        *,
        ended_ms: int | None = None,
        seen: str = "",
    ) -> EndPassAnswer:
        """Note that a pass finished, and keep its *report*.

        *ended_ms*: the ledger's time as the sweeper reckons it, or None.  *ahead_count*: the
        number of the request to look ahead that this pass has met, or empty.  *seen*: which
        workers it has seen, as the next pass is to hear it; empty: that sees all anew.
        """
        return self._caller.run(
            self.calls.end_pass(
                nonce=nonce,
                report=json.dumps(dict(report)),
                ahead_count=ahead_count,
                ended_ms=ended_ms,
                seen=seen,
            )
        )

    def look_ahead(self, *, broker: str) -> LookAheadAnswer:
        """Ask the next pass to look at queued records before they are due, if *broker*, the server
        of the queues, is another one than before, or was emptied.
        """
        return self._caller.run(self.calls.look_ahead(broker=broker))

    def meta(self) -> dict[str, str]:
        """Return generation, passed_ms, grace_ms and the last pass's report."""
        raw = self._caller.read("meta", lambda client: client.hgetall(self.keys.meta))
        return {k.decode(): v.decode() for k, v in raw.items()}
