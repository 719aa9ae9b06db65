"""What the ledger answers: a small type for each reply, and a union of them for each transition.

A reply's name on the wire is the `word` of its type: the type's own name, or one that says more
where scripts give one word with different values.
"""

from __future__ import annotations

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.objects import (
    KeptFor,
    Locked,
    LockedBy,
    NotHeld,
    OtherObject,
    Stopping,
    Unlocked,
)
from celery_reliable.ledger.answers.operators import Audited, Grouped, Noted
from celery_reliable.ledger.answers.tasks import (
    Absent,
    Alone,
    Announced,
    Batch,
    Bequeathed,
    Buried,
    Cancelled,
    Changed,
    Claimed,
    Concluding,
    Dead,
    Discarded,
    Elsewhere,
    Ended,
    Exists,
    Fenced,
    Gone,
    Held,
    NoLease,
    NotCurrent,
    NotDead,
    NotWithdrawn,
    Opened,
    Opening,
    OtherGeneration,
    Outlived,
    Parked,
    Postponed,
    Queued,
    Recorded,
    Released,
    Replayed,
    Running,
    Sealed,
    Send,
    Settled,
    Spent,
    Stale,
    Touched,
    Troubled,
    Unknown,
    Unrecorded,
    Waiting,
    Withdrawn,
)
from celery_reliable.ledger.answers.workers import (
    Acknowledged,
    Alive,
    Already,
    Asked,
    Beat,
    BeatOfDead,
    Begun,
    Busy,
    Declared,
    DeclaredDead,
    Deregistered,
    Forgotten,
    Grace,
    Known,
    Newer,
    NotDue,
    Overtaken,
    Refused,
    Registered,
    Renewed,
    SetBack,
    Suspected,
)

__all__ = [
    "Absent",
    "AcknowledgeAnswer",
    "Acknowledged",
    "Alive",
    "Alone",
    "Already",
    "AnnounceAnswer",
    "Announced",
    "Answer",
    "Asked",
    "AuditAnswer",
    "Audited",
    "Batch",
    "Beat",
    "BeatOfDead",
    "BeginPassAnswer",
    "Begun",
    "BequeathAnswer",
    "Bequeathed",
    "BlameAnswer",
    "Buried",
    "BuryAnswer",
    "BuryMessageAnswer",
    "Busy",
    "CancelAnswer",
    "Cancelled",
    "Changed",
    "ClaimAnswer",
    "Claimed",
    "ConcludeAnswer",
    "Concluding",
    "Dead",
    "DeclareAnswer",
    "Declared",
    "DeclaredDead",
    "DeregisterAnswer",
    "Deregistered",
    "DiscardAnswer",
    "Discarded",
    "Elsewhere",
    "EndPassAnswer",
    "Ended",
    "EndedAnswer",
    "Exists",
    "Fenced",
    "Forgotten",
    "Gone",
    "Grace",
    "GroupAnswer",
    "Grouped",
    "HeartbeatAnswer",
    "Held",
    "KeptFor",
    "Known",
    "LockAnswer",
    "Locked",
    "LockedBy",
    "LoseAnswer",
    "Newer",
    "NoLease",
    "NotCurrent",
    "NotDead",
    "NotDue",
    "NotHeld",
    "NotWithdrawn",
    "NoteAnswer",
    "Noted",
    "OpenAnswer",
    "Opened",
    "OpenedAnswer",
    "Opening",
    "OtherGeneration",
    "OtherObject",
    "OutliveAnswer",
    "Outlived",
    "Overtaken",
    "Parked",
    "PostponeAnswer",
    "Postponed",
    "Queued",
    "ReadAnswer",
    "RecognizeAnswer",
    "RecordAnswer",
    "Recorded",
    "Refused",
    "RegisterAnswer",
    "Registered",
    "ReleaseAnswer",
    "Released",
    "RelyAnswer",
    "Renewed",
    "ReplaceAnswer",
    "ReplayAnswer",
    "Replayed",
    "ResendAnswer",
    "Running",
    "Sealed",
    "Send",
    "SetBack",
    "SetBackAnswer",
    "SettleAnswer",
    "Settled",
    "Spent",
    "Stale",
    "Stopping",
    "Suspected",
    "TouchAnswer",
    "Touched",
    "Troubled",
    "Unknown",
    "UnlockAnswer",
    "Unlocked",
    "Unrecorded",
    "Waiting",
    "WithdrawAnswer",
    "Withdrawn",
]

AcknowledgeAnswer = Acknowledged | Changed
AnnounceAnswer = Announced | Changed
BeginPassAnswer = Begun | Busy | NotDue | Newer
BequeathAnswer = Bequeathed | Fenced | Gone
BlameAnswer = Queued | Spent | Fenced | Gone
BuryAnswer = Buried | Fenced | Gone
BuryMessageAnswer = Buried | Fenced | Stale | Unrecorded
CancelAnswer = Cancelled | Running | Dead | Stale | Gone
ClaimAnswer = Claimed | Held | Stale | Parked | Ended | Dead | NoLease | Unrecorded | Alone
ConcludeAnswer = Concluding | Fenced | Gone
DeclareAnswer = Declared | Alive | Grace | Suspected | Already | Gone
DeregisterAnswer = Deregistered | Refused
DiscardAnswer = Discarded | Absent | NotDead
EndPassAnswer = Ended | Overtaken
EndedAnswer = Ended | Exists | Unrecorded
AuditAnswer = Audited
GroupAnswer = Grouped
HeartbeatAnswer = Renewed | BeatOfDead | Forgotten
LockAnswer = Locked | LockedBy | KeptFor | Stopping | NotCurrent
LoseAnswer = Queued | Spent | Fenced | Gone | Changed
NoteAnswer = Noted
OpenAnswer = Opening | Alone | Dead | NoLease
OpenedAnswer = Opened | Changed
OutliveAnswer = Outlived | Held | Changed
PostponeAnswer = Postponed | Changed | Gone
ReadAnswer = Opening | Opened | Sealed | Changed
RecognizeAnswer = Known | Asked
RecordAnswer = Recorded | NotCurrent | Exists | OtherGeneration | Unknown
RegisterAnswer = Registered | DeclaredDead | Newer
ReleaseAnswer = Released | Fenced | Gone
RelyAnswer = Exists | Dead | Gone | Concluding
ReplaceAnswer = Waiting | Fenced | Gone
ReplayAnswer = Replayed | Absent | NotDead | OtherGeneration
ResendAnswer = Send | Held | Changed
SetBackAnswer = SetBack | Ended
SettleAnswer = Settled | Fenced | Gone | Elsewhere
TouchAnswer = Touched | Fenced | Gone
UnlockAnswer = Unlocked | NotHeld
WithdrawAnswer = Withdrawn | NotWithdrawn | Gone
