"""What the ledger answers: a small type for each reply, and a union of them for each transition.

A reply's name on the wire is the `word` of its type: the type's own name, or one that says more
where scripts give one word with different values.
"""

# Each of these modules says in its `__all__` which types it has.
# ruff: noqa: F403, F405
from __future__ import annotations

from celery_reliable.ledger.answers.base import *
from celery_reliable.ledger.answers.objects import *
from celery_reliable.ledger.answers.tasks import *
from celery_reliable.ledger.answers.workers import *

AcknowledgeAnswer = Acknowledged | Changed
AnnounceAnswer = Announced | Changed
AssignAnswer = Assigned | Waits | Absent
BeginPassAnswer = Begun | Busy | NotDue | Newer
BequeathAnswer = Bequeathed | Fenced | Gone
BlameAnswer = Queued | Spent | Fenced | Gone
BuryAnswer = Buried | Fenced | Gone
BuryMessageAnswer = Buried | Fenced | Stale | Unrecorded
CallUpAnswer = Next | Nobody
CancelAnswer = Cancelled | Running | Dead | Stale | Gone
ClaimAnswer = Claimed | Held | Stale | Parked | Ended | Dead | NoLease | Unrecorded | Alone | Struck
ConcludeAnswer = Concluding | Fenced | Gone
DeclareAnswer = Declared | Alive | Grace | Suspected | Already | Gone
DeregisterAnswer = Deregistered | Refused
DivertAnswer = Diverted | Changed | Absent
DiscardAnswer = Discarded | Absent | NotDead
EndPassAnswer = Ended | Overtaken
EndRunAnswer = Postponed | Ended | Changed
EndedAnswer = Ended | Exists | Unrecorded
HeartbeatAnswer = Renewed | BeatOfDead | Forgotten
LockAnswer = Locked | LockedBy | KeptFor | Stopping | OwnPlace | NotCurrent
LoseAnswer = Queued | Spent | Fenced | Gone | Changed
MoveAnswer = Moved | Changed | Absent
OpenAnswer = Opening | Alone | Dead | NoLease
OpenedAnswer = Opened | Changed
OrderAnswer = Ordered | Changed
OutliveAnswer = Outlived | Held | Changed
ParkAnswer = Unplaced | Changed
PlaceAnswer = Placed | Full | Standing | Sent | Send | StillStopping | OwnPlace | NotCurrent
PostponeAnswer = Postponed | Changed | Gone
ReadAnswer = Opening | Opened | Sealed | Changed
RecognizeAnswer = Known | Asked
RecordAnswer = Recorded | NotCurrent | InUse | Anothers | OtherGeneration | Unknown | NamesOthers
RegisterAnswer = Registered | DeclaredDead | Newer
ReleaseAnswer = Released | Fenced | Gone
RelyAnswer = Exists | Dead | Gone | Concluding
ReplaceAnswer = Waiting | Fenced | Gone
ReplayAnswer = Replayed | Absent | NotDead | OtherGeneration
ReserveAnswer = Free | ParkedUntil
RipeAnswer = Ripe | Another
ResendAnswer = Send | Held | Changed
ResumeAnswer = Resumed | InForce | Gone
SetBackAnswer = SetBack | Ended
SettleAnswer = Settled | Fenced | Gone | Elsewhere
StopAnswer = Told | Changed
StoreAnswer = Stored | Fenced | Gone | Elsewhere
TouchAnswer = Touched | Fenced | Gone
UnlistAnswer = Unlisted | Changed
UnlockAnswer = Unlocked | NotHeld
WakeAnswer = Woken | StillWaiting | Changed
WithdrawAnswer = Withdrawn | NotWithdrawn | Gone
