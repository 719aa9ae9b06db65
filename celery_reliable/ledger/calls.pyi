"""The calls of scripts, by their headers.  Written by ``python -m tests.support.stubs``."""

# ruff: noqa: A002
from collections.abc import Sequence

from celery_reliable.ledger import answers
from celery_reliable.ledger.schema import Keys
from celery_reliable.ledger.transitions import Argument, Step

class Calls:
    keys: Keys
    def __init__(self, keys: Keys) -> None: ...
    def acknowledge(
        self,
        *,
        id: str,
        claim: str,
        worker: str,
    ) -> Step[answers.AcknowledgeAnswer]: ...
    def announce(
        self,
        *,
        id: str,
        buried_ms: int,
        reader: str = "",
        is_over: bool = False,
    ) -> Step[answers.AnnounceAnswer]: ...
    def assign(
        self,
        *,
        member: str,
        is_confirmed: bool = False,
        run: str,
        workers: Sequence[Argument] = (),
    ) -> Step[answers.AssignAnswer]: ...
    def audit(
        self,
        *,
        token: str,
        about: str,
        most: int,
    ) -> Step[answers.AuditAnswer]: ...
    def begin_pass(
        self,
        *,
        nonce: str,
        interval_ms: int,
        ttl_ms: int,
        interruption_ms: int,
        lease_ms: int,
        expected_ms: int | None = None,
        format: int,
    ) -> Step[answers.BeginPassAnswer]: ...
    def begin_run(
        self,
        *,
        id: str,
        name: str,
        only: str,
        due_in_ms: int,
        members: Sequence[Argument] = (),
    ) -> Step[answers.BeginRunAnswer]: ...
    def bury(
        self,
        *,
        id: str,
        attempt: int | None = None,
        reason: str,
        exception: str,
        kind: str,
        traceback: str,
        message: str = "",
        name: str = "",
        token: str = "",
        owed: bool = False,
        epoch: str = "",
        unproved: bool = False,
        worker: str,
    ) -> Step[answers.BuryAnswer]: ...
    def cancel(
        self,
        *,
        id: str,
        seen: str,
        is_letter: bool = False,
        is_unsent: bool = False,
        if_running: str = "",
        is_surplus: bool = False,
        due_in_ms: int,
        outcome: str | None = None,
        by: str | None = None,
        most: int | None = None,
    ) -> Step[answers.CancelAnswer]: ...
    def claim(
        self,
        *,
        id: str,
        epoch: str,
        generation: str,
        worker: str,
        token: str,
        pid: int,
        time_to_run_ms: int,
        name: str,
        max_losses: int | None = None,
        message: str = "",
        alone_ms: int | None = None,
        list: str | None = None,
        strikes: Sequence[Argument] = (),
    ) -> Step[answers.ClaimAnswer]: ...
    def declare(
        self,
        *,
        worker: str,
        cause: str,
        renewals: str,
        client_id: str,
        witness_ms: int,
        expected_ms: int | None = None,
    ) -> Step[answers.DeclareAnswer]: ...
    def deregister(
        self,
        *,
        worker: str,
        in_unacked: int,
        taken_ms: int,
    ) -> Step[answers.DeregisterAnswer]: ...
    def divert(
        self,
        *,
        id: str,
        epoch: str = "",
        is_waiting: bool = False,
    ) -> Step[answers.DivertAnswer]: ...
    def due(
        self,
        *,
        limit: int,
    ) -> Step[answers.DueAnswer]: ...
    def end_pass(
        self,
        *,
        nonce: str,
        report: str,
        ahead_count: str,
        ended_ms: int | None = None,
        seen: str,
    ) -> Step[answers.EndPassAnswer]: ...
    def end_run(
        self,
        *,
        id: str,
        due_ms: str,
        keep_ms: int | None = None,
        due_in_ms: int | None = None,
    ) -> Step[answers.EndRunAnswer]: ...
    def ended(
        self,
        *,
        generation: str,
        number: int | None = None,
        id: str,
        sender: str,
    ) -> Step[answers.EndedAnswer]: ...
    def heartbeat(
        self,
        *,
        worker: str,
        lease_ms: int,
        client_id: int,
        number: int,
        doing: str,
    ) -> Step[answers.HeartbeatAnswer]: ...
    def look_ahead(
        self,
        *,
        broker: str,
    ) -> Step[answers.LookAheadAnswer]: ...
    def lose(
        self,
        *,
        id: str,
        attempt: int,
        cause: str = "",
        max_losses: int,
        due_in_ms: int,
        token: str,
        is_taken: bool = False,
        due_ms: str = "",
        is_unsent: bool = False,
        is_counted: bool = False,
        is_death: str = "",
        detail: str = "",
        death: str = "",
        worker: str,
    ) -> Step[answers.LoseAnswer]: ...
    def note(
        self,
        *,
        kind: str,
        about: str,
        most: int,
        at_once: int,
        counted: str,
        counts: int,
        nameless: str,
    ) -> Step[answers.NoteAnswer]: ...
    def order(
        self,
        *,
        id: str,
        kind: str,
        target: str,
        object: str,
        has_object: bool = False,
        is_stop: bool = False,
        by: str,
        why: str,
        for_ms: int,
        version: int,
    ) -> Step[answers.OrderAnswer]: ...
    def place(
        self,
        *,
        id: str,
        attempt: int | None = None,
        token: str,
        object: str,
        places: int,
        is_own: bool = False,
        stands: bool = False,
        due_in_ms: int,
        list: str = "",
        worker: str,
    ) -> Step[answers.PlaceAnswer]: ...
    def postpone(
        self,
        *,
        id: str,
        due_ms: str,
        due_in_ms: int,
        is_unsent: bool = False,
    ) -> Step[answers.PostponeAnswer]: ...
    def record(
        self,
        *,
        id: str,
        epoch: str,
        generation: str,
        due_in_ms: int,
        waits_for: str = "",
        message: str,
        name: str,
        attempt: int | None = None,
        max_losses: int | None = None,
        token: str = "",
        remember_ms: int | None = None,
        used: bool = False,
        heir: str = "",
        number: int | None = None,
        is_sent: bool = False,
        if_exists: str = "",
        buried_ms: int | None = None,
        by: str = "",
        object: str | None = None,
        places: int | None = None,
        is_own: bool = False,
        unique: str | None = None,
        worker: str,
        queue: str,
        sender: str,
    ) -> Step[answers.RecordAnswer]: ...
    def register(
        self,
        *,
        worker: str,
        lease_ms: int,
        client_id: int,
        facts: str,
        number: int,
        format: int,
        queue: str,
    ) -> Step[answers.RegisterAnswer]: ...
    def replace(
        self,
        *,
        id: str,
        attempt: int,
        due_in_ms: int,
        token: str,
        stored: str = "",
        members: str,
        worker: str,
    ) -> Step[answers.ReplaceAnswer]: ...
    def resend(
        self,
        *,
        id: str,
        due_ms: str,
        due_in_ms: int,
        stored: str = "",
        message: str = "",
        epoch: str = "",
        places: int | None = None,
        is_expired: bool = False,
        next: str = "",
    ) -> Step[answers.ResendAnswer]: ...
    def resume(
        self,
        *,
        id: str,
        by: str,
        limit: int,
    ) -> Step[answers.ResumeAnswer]: ...
    def settle(
        self,
        *,
        id: str,
        attempt: int,
        token: str,
        value: str | bytes = "",
        final: str = "",
        expires_seconds: int,
        db: int | None = None,
        own_db: int,
        keep_ms: int,
        places: int | None = None,
        outcome: str | None = None,
        by: str | None = None,
        most: int | None = None,
        worker: str,
        result: str,
    ) -> Step[answers.SettleAnswer]: ...
    def store(
        self,
        *,
        attempt: int,
        token: str,
        value: str | bytes,
        final: str,
        expires_seconds: int,
        db: int | None = None,
        own_db: int,
        after: str,
        id: str,
        result: str,
    ) -> Step[answers.StoreAnswer]: ...
    def touch(
        self,
        *,
        id: str,
        attempt: int,
        token: str,
        time_to_run_ms: int | None = None,
        is_concluding: bool = False,
        heir: str = "",
    ) -> Step[answers.TouchAnswer]: ...
    def unlist(
        self,
        *,
        queue: str,
        registered_ms: str,
    ) -> Step[answers.UnlistAnswer]: ...
    def unlock(
        self,
        *,
        id: str,
        attempt: int,
        token: str,
        object: str,
    ) -> Step[answers.UnlockAnswer]: ...
    def wait(
        self,
        *,
        id: str,
        epoch: str = "",
        in_ms: int | None = None,
        interval_us: int | None = None,
        waits_for: str,
        list: str = "",
        named: str = "",
        key: str,
    ) -> Step[answers.WaitAnswer]: ...
    def wake(
        self,
        *,
        who: str,
        lease_ms: int,
        limit: int,
        due_in_ms: int,
    ) -> Step[answers.WakeAnswer]: ...
