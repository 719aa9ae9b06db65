"""What scripts answer, by their headers.  Written by ``python -m tests.support.stubs``."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias, final

class Answer:
    word: ClassVar[str]

def made(word: str) -> type[Answer]: ...

@final
@dataclass
class Absent(Answer): ...

@final
@dataclass
class Acknowledged(Answer): ...

@final
@dataclass
class Alive(Answer): ...

@final
@dataclass
class Alone(Answer): ...

@final
@dataclass
class Already(Answer): ...

@final
@dataclass
class Announced(Answer): ...

@final
@dataclass
class Another(Answer):
    wait_ms: int

@final
@dataclass
class Anothers(Answer):
    state: str
    since_ms: int
    name: str

@final
@dataclass
class Asked(Answer): ...

@final
@dataclass
class Assigned(Answer):
    worker: str

@final
@dataclass
class Audited(Answer): ...

@final
@dataclass
class Batch(Answer):
    now_ms: int
    ids_and_times: tuple[str, ...]

@final
@dataclass
class BeatOfDead(Answer):
    version: int
    now_ms: int
    n_stops: int
    n_claims: int
    ids_and_claims: tuple[str, ...]

@final
@dataclass
class Begun(Answer):
    grace_ms: int
    ahead_ms: int | None
    ahead_count: int | None
    now_ms: int
    stepped_ms: int | None
    stepped_by_ms: int | None
    seen: str
    has_due: int
    n_orders: int
    n_dead: int
    oldest_ms: int
    ids_and_times: tuple[str, ...]

@final
@dataclass
class BegunRun(Answer): ...

@final
@dataclass
class Buried(Answer): ...

@final
@dataclass
class Busy(Answer): ...

@final
@dataclass
class Cancelled(Answer): ...

@final
@dataclass
class Changed(Answer): ...

@final
@dataclass
class Claimed(Answer):
    attempt: int
    losses: int
    place: str

@final
@dataclass
class Concluding(Answer): ...

@final
@dataclass
class Dead(Answer): ...

@final
@dataclass
class Declared(Answer): ...

@final
@dataclass
class DeclaredDead(Answer): ...

@final
@dataclass
class Deregistered(Answer): ...

@final
@dataclass
class Diverted(Answer): ...

@final
@dataclass
class Elsewhere(Answer): ...

@final
@dataclass
class Ended(Answer): ...

@final
@dataclass
class Exists(Answer):
    state: str

@final
@dataclass
class Fenced(Answer):
    state: str

@final
@dataclass
class Forgotten(Answer):
    version: int
    now_ms: int
    n_stops: int
    n_claims: int
    ids_and_claims: tuple[str, ...]

@final
@dataclass
class Free(Answer): ...

@final
@dataclass
class Full(Answer):
    before: str

@final
@dataclass
class Gone(Answer): ...

@final
@dataclass
class Grace(Answer):
    until_ms: int

@final
@dataclass
class Held(Answer):
    owner: str

@final
@dataclass
class InForce(Answer): ...

@final
@dataclass
class InUse(Answer):
    state: str
    since_ms: int

@final
@dataclass
class KeptFor(Answer):
    task_id: str

@final
@dataclass
class Known(Answer): ...

@final
@dataclass
class LockedBy(Answer):
    task_id: str

@final
@dataclass
class Newer(Answer):
    format: str

@final
@dataclass
class NoLease(Answer): ...

@final
@dataclass
class NotCurrent(Answer): ...

@final
@dataclass
class NotDead(Answer): ...

@final
@dataclass
class NotDue(Answer):
    wait_ms: int
    now_ms: int

@final
@dataclass
class NotHeld(Answer): ...

@final
@dataclass
class Noted(Answer): ...

@final
@dataclass
class Opened(Answer): ...

@final
@dataclass
class Opening(Answer): ...

@final
@dataclass
class Ordered(Answer): ...

@final
@dataclass
class OtherGeneration(Answer):
    current: str
    format: str

@final
@dataclass
class Overtaken(Answer): ...

@final
@dataclass
class Placed(Answer):
    object_key: str

@final
@dataclass
class Postponed(Answer): ...

@final
@dataclass
class Queued(Answer):
    losses: int

@final
@dataclass
class Recorded(Answer): ...

@final
@dataclass
class Refused(Answer):
    claims: int

@final
@dataclass
class Registered(Answer): ...

@final
@dataclass
class Renewed(Answer):
    version: int
    now_ms: int
    n_stops: int
    n_claims: int
    ids_and_claims: tuple[str, ...]

@final
@dataclass
class Resumed(Answer):
    count: int
    is_more: bool

@final
@dataclass
class Running(Answer):
    owner: str

@final
@dataclass
class Sealed(Answer): ...

@final
@dataclass
class Send(Answer):
    message: str
    due_ms: str

@final
@dataclass
class Settled(Answer): ...

@final
@dataclass
class Spent(Answer):
    losses: int

@final
@dataclass
class Stale(Answer): ...

@final
@dataclass
class Standing(Answer):
    before: str

@final
@dataclass
class StillStopping(Answer):
    task_id: str

@final
@dataclass
class Stored(Answer): ...

@final
@dataclass
class Struck(Answer):
    order: str

@final
@dataclass
class Suspected(Answer): ...

@final
@dataclass
class Touched(Answer):
    is_used: bool

@final
@dataclass
class Troubled(Answer): ...

@final
@dataclass
class Unknown(Answer): ...

@final
@dataclass
class Unlisted(Answer): ...

@final
@dataclass
class Unlocked(Answer): ...

@final
@dataclass
class Unrecorded(Answer): ...

@final
@dataclass
class Waiting(Answer): ...

@final
@dataclass
class Waits(Answer): ...

@final
@dataclass
class WaitsUntil(Answer):
    due_ms: int

@final
@dataclass
class Woken(Answer):
    wait_ms: int
    ids_and_times: tuple[str, ...]

AcknowledgeAnswer: TypeAlias = Acknowledged | Changed
AnnounceAnswer: TypeAlias = Announced | Opening | Opened | Sealed | Changed
AssignAnswer: TypeAlias = Assigned | Waits | Absent
AuditAnswer: TypeAlias = Audited
BeginPassAnswer: TypeAlias = Begun | Busy | NotDue | Newer
BeginRunAnswer: TypeAlias = BegunRun
BuryAnswer: TypeAlias = Buried | Fenced | Gone | Stale | Unrecorded
CancelAnswer: TypeAlias = Cancelled | Running | Dead | Stale | Gone
ClaimAnswer: TypeAlias = Claimed | Held | Stale | Waits | Ended | Dead | NoLease | Unrecorded | Alone | Struck
DeclareAnswer: TypeAlias = Declared | Alive | Grace | Suspected | Already | Gone
DeregisterAnswer: TypeAlias = Deregistered | Refused
DivertAnswer: TypeAlias = Diverted | Changed | Absent
DueAnswer: TypeAlias = Batch
EndPassAnswer: TypeAlias = Ended | Overtaken
EndRunAnswer: TypeAlias = Postponed | Ended | Changed
EndedAnswer: TypeAlias = Ended | Exists | Unrecorded
HeartbeatAnswer: TypeAlias = Renewed | BeatOfDead | Forgotten
LookAheadAnswer: TypeAlias = Asked | Known
LoseAnswer: TypeAlias = Queued | Spent | Fenced | Gone | Changed
NoteAnswer: TypeAlias = Noted
OrderAnswer: TypeAlias = Ordered | Changed
PlaceAnswer: TypeAlias = Placed | Full | Standing | NotCurrent
PostponeAnswer: TypeAlias = Postponed | Changed | Gone
RecordAnswer: TypeAlias = Recorded | NotCurrent | InUse | Anothers | OtherGeneration | Unknown | Standing | NotDead | LockedBy | KeptFor | Concluding | StillStopping
RegisterAnswer: TypeAlias = Registered | DeclaredDead | Newer
ReplaceAnswer: TypeAlias = Waiting | Fenced | Gone
ResendAnswer: TypeAlias = Send | Held | Changed | Standing
ResumeAnswer: TypeAlias = Resumed | InForce | Gone
SettleAnswer: TypeAlias = Settled | Fenced | Gone | Elsewhere
StoreAnswer: TypeAlias = Stored | Fenced | Gone | Elsewhere
TouchAnswer: TypeAlias = Touched | Fenced | Gone
UnlistAnswer: TypeAlias = Unlisted | Changed
UnlockAnswer: TypeAlias = Unlocked | NotHeld
WaitAnswer: TypeAlias = Free | WaitsUntil | Changed
WakeAnswer: TypeAlias = Woken | Another
