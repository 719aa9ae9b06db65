"""Dead letters as people see them: in pages, by group, and one in full, with its arguments redacted
unless they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from celery import Celery

from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger, death_of, group_of
from celery_reliable.message import Envelope
from celery_reliable.model import DeadLetter, Group, Record
from celery_reliable.operations import views
from celery_reliable.operations.filters import OF_GROUPS, Filter, Subject
from celery_reliable.operations.messages import arguments_of, envelope_of, object_of
from celery_reliable.operations.pages import Page, Position, Walk
from celery_reliable.operations.words import moment, printable
from celery_reliable.recovery import MOST_BYTES

__all__ = [
    "REDACTED",
    "LetterPages",
    "LetterWalk",
    "UnknownGroup",
    "message_view",
    "short_view",
]

#: Read in one round trip.
_AT_ONCE = 100
#: Looked at by one page.
_MOST = 500
#: So many groups are walked at once; among more, all letters are looked at.
_MOST_GROUPS = 50
#: A name of a task that is as long may have been cut.
_LONGEST_WHOLE = 100
#: Of messages, in one page.
_MOST_BYTES_OF_A_PAGE = 8 * MOST_BYTES
#: New letters whose group one reader finds out at most.
_CAUGHT_UP_AT_ONCE = 500

#: Stands where a view keeps arguments to itself.
REDACTED = "(redacted)"

#: The headers that Celery and we write ourselves, without the two that repeat the arguments.  Any
#: other header is a producer's own, and what it says nobody here can know.
_SHOWN_HEADERS = frozenset(
    {
        "compression",
        "eta",
        "expires",
        "group",
        "group_index",
        "id",
        "ignore_result",
        "lang",
        "origin",
        "parent_id",
        "reliable",
        "reliable_heir",
        "reliable_origin",
        "replaced_task_nesting",
        "retries",
        "root_id",
        "shadow",
        "stamped_headers",
        "task",
        "timelimit",
    }
)

#: The properties that Celery and kombu write.  Any other option of a call is a property, too.
_SHOWN_PROPERTIES = frozenset(
    {
        "body_encoding",
        "correlation_id",
        "delivery_info",
        "delivery_mode",
        "delivery_tag",
        "expiration",
        "priority",
        "reply_to",
    }
)


class UnknownGroup(ReliableError, LookupError):
    """There is no group of dead letters with this id."""


class LetterPages:
    """Reads dead letters.  Raises what the ledger raises; each read is bounded."""

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    def page(
        self,
        wanted: Filter | None = None,
        *,
        group: str = "",
        cursor: str = "",
        limit: int = 50,
    ) -> Page[views.DeadLetter]:
        """Return at most *limit* letters that fit, the latest first, of one *group* or of all.

        Raises BadCursor, and UnknownGroup.
        """
        if group:
            self._ledger.groups.catch_up(_CAUGHT_UP_AT_ONCE)
            self.group(group)
        wanted = wanted or Filter()
        groups = None if group else self._groups_with(wanted)
        if groups == []:
            return Page((), "", 0)
        walk = LetterWalk(
            self._app,
            self._ledger,
            wanted,
            self._ledger.workers.time_ms(),
            group=group,
            groups=groups or (),
            place=Position.of(cursor),
            is_latest_first=True,
            most=_MOST,
        )
        found = []
        for letter in walk:
            found.append(short_view(letter))
            if len(found) >= limit or walk.n_bytes > _MOST_BYTES_OF_A_PAGE:
                break
        return Page(tuple(found), walk.cursor, walk.looked_at)

    def _groups_with(self, wanted: Filter) -> list[str] | None:
        """Return groups outside of which no letter fits; None where the index does not tell, or
        there are too many.
        """
        if not OF_GROUPS & wanted.given.keys():
            return None
        state = self._ledger.groups.catch_up(_CAUGHT_UP_AT_ONCE)
        counts = self._ledger.groups.counts()
        if sum(one.count for one in counts) != state.letters:
            return None
        found = [one.group.id for one in counts if _may_have(one.group, wanted)]
        return found if len(found) <= _MOST_GROUPS else None

    def group(self, group_id: str) -> Group:
        """Return what the letters of a group have in common.  Raises UnknownGroup."""
        found = self._ledger.groups.find(group_id)
        if found is None:
            raise UnknownGroup(
                f"There is no group {group_id[:50]!r} of dead letters (any more). "
                "`celery -A … reliable dead-letters groups` shows those that there are."
            )
        return found

    def groups(self, wanted: Filter | None = None) -> views.Groups:
        """Return the groups that fit, by task, reason, exception, cause and text; the rest of a
        filter is about single letters.
        """
        filter_ = wanted or Filter()
        state = self._ledger.groups.catch_up(_CAUGHT_UP_AT_ONCE)
        found = [
            views.Group(
                group=one.group.id,
                count=one.count,
                task=one.group.task,
                reason=one.group.reason,
                cause=one.group.cause,
                exception=one.group.exception,
                first_at=moment(one.first_ms),
                last_at=moment(one.last_ms),
                example=one.example_id,
            )
            for one in self._ledger.groups.counts()
            if filter_.fits_group(one.group)
        ]
        return views.Groups(tuple(found), state.letters, min(state.grouped, state.letters))


def _may_have(group: Group, wanted: Filter) -> bool:
    """Whether a group may have letters that fit.  Its exception is a type's name, or nothing; the
    name of its task may be cut.
    """
    return Filter(
        task=wanted.task if len(group.task) < _LONGEST_WHOLE else None,
        reason=wanted.reason,
        exception=wanted.exception if group.exception else None,
    ).fits_group(group)


class LetterWalk(Walk[DeadLetter]):
    """Yields the dead letters that fit.  What the index of groups has too much of is put right on
    the way.

    Args:
        app: whose tasks say which object a message is about.
        ledger: where they are.
        wanted: those that fit.
        now_ms: the server's time, from which ages are reckoned.
        group: only those of this one, by its id.
        groups: look at no others than those of these, which the index knows completely.
        place: where to begin.
        is_latest_first: else the oldest.
        until_ms: none that was buried later.
        most: how many to look at; None: all.
        deadline: by `time.monotonic`; nothing is read after it, but once.
    """

    def __init__(
        self,
        app: Celery,
        ledger: Ledger,
        wanted: Filter,
        now_ms: int,
        *,
        group: str = "",
        groups: Sequence[str] = (),
        place: Position | None = None,
        is_latest_first: bool = False,
        until_ms: int | None = None,
        most: int | None = None,
        deadline: float | None = None,
    ) -> None:
        super().__init__(place, most, deadline, first=_AT_ONCE, at_once=_AT_ONCE)
        self._app = app
        self._ledger = ledger
        self._wanted = wanted
        # What records tell without their messages.
        self._filter = replace(wanted, queue=None, object_id=None)
        self._now_ms = now_ms
        self._group = group
        self._groups = (group,) if group else groups
        self._is_latest_first = is_latest_first
        self._until_ms = until_ms
        self.n_bytes = 0

    def _entries(self, place: tuple[int, str] | None, limit: int) -> list[tuple[str, int]]:
        how: Any = {"is_latest_first": self._is_latest_first, "until_ms": self._until_ms}
        if not self._groups:
            return self._ledger.letters_after(place, limit, **how)
        read = self._ledger.groups.letters_of
        found = [one for group in self._groups for one in read(group, place, limit, **how)]
        found.sort(key=lambda one: (one[1], one[0]), reverse=self._is_latest_first)
        return found[:limit]

    def _light(self, entries: list[tuple[str, int]]) -> list[DeadLetter | None]:
        letters = self._ledger.light_letters([task_id for task_id, _ in entries])
        found: list[DeadLetter | None] = []
        wrong: list[bytes] = []
        for (task_id, ms), letter in zip(entries, letters, strict=True):
            if letter is not None and letter.buried_ms != ms:
                letter = None
            if self._group and (letter is None or group_of(letter).id != self._group):
                entry = f"{self._group} {ms:015d} {task_id}"
                wrong.append(entry.encode("utf-8", "backslashreplace"))
                letter = None
            if letter is not None and not self._filter.matches(_subject(letter), self._now_ms):
                letter = None
            found.append(letter)
        if wrong:
            self._ledger.groups.look_at(wrong)
        return found

    def _whole(self, found: list[DeadLetter]) -> Iterator[DeadLetter | None]:
        letters = self._ledger.letters_in_groups(
            [one.task_id for one in found], most_bytes=MOST_BYTES
        )
        for light, letter in zip(found, letters, strict=True):
            if letter is None or letter.buried_ms != light.buried_ms:
                yield None
                continue
            self.n_bytes += len(letter.message)
            yield letter if not self._wanted.needs_message or self._fits(letter) else None

    def _fits(self, letter: DeadLetter) -> bool:
        envelope = envelope_of(letter)
        subject = _subject(letter)
        if envelope is not None:
            subject = replace(
                subject,
                queue=envelope.routing_key or envelope.exchange,
                object_id="" if self._wanted.object_id is None else object_of(self._app, envelope),
            )
        return self._wanted.matches(subject, self._now_ms)


def _subject(letter: DeadLetter) -> Subject:
    return Subject(
        task_id=letter.task_id,
        name=letter.name,
        reason=letter.reason.value,
        exception=letter.exception,
        cause=str(death_of(letter)),
        workers=tuple(
            {one.owner for one in letter.history if one.owner and one.what != "replayed"}
        ),
        at_ms=letter.buried_ms,
    )


def short_view(letter: DeadLetter) -> views.DeadLetter:
    """Return what a list shows of a dead letter."""
    envelope = envelope_of(letter)
    return views.DeadLetter(
        task_id=letter.task_id,
        name=letter.name,
        reason=letter.reason.value,
        exception=letter.exception,
        cause=str(death_of(letter)),
        group=group_of(letter).id,
        attempts=letter.attempts,
        losses=letter.losses,
        published_at=moment(letter.published_ms),
        buried_at=moment(letter.buried_ms),
        queue=(envelope.routing_key or envelope.exchange) if envelope else "",
    )


def message_view(stored: Record, *, with_arguments: bool = False) -> dict[str, Any]:
    """Return what a task's message says, as plain JSON values.

    Without *with_arguments* whatever may repeat an argument is redacted: arguments, body, and every
    header and property that is not Celery's, kombu's or ours.
    """
    envelope = envelope_of(stored)
    args = kwargs = REDACTED
    body: Any = REDACTED
    if with_arguments:
        body = stored.message
        if envelope is not None:
            args, kwargs, body = _arguments_of(envelope)
    return {
        "args": args,
        "kwargs": kwargs,
        "headers": _shown(
            envelope.headers if envelope else {}, None if with_arguments else _SHOWN_HEADERS
        ),
        "body": body,
        "properties": _shown(
            envelope.properties if envelope else {}, None if with_arguments else _SHOWN_PROPERTIES
        ),
        "content_type": envelope.content_type if envelope else "",
    }


def _shown(found: Mapping[str, Any], harmless: frozenset[str] | None) -> dict[str, Any]:
    """Return *found* with all values redacted but the *harmless* ones; None: with all values."""
    return {
        name: _plain(value) if harmless is None or name in harmless else REDACTED
        for name, value in found.items()
    }


def _arguments_of(envelope: Envelope) -> tuple[Any, Any, Any]:
    """Return args, kwargs and body as far as they can be read without running anything."""
    try:
        args, kwargs, embed = arguments_of(envelope)
    except Exception:
        found = envelope.headers
        body = envelope.body.decode("utf-8", "backslashreplace")
        return found.get("argsrepr"), found.get("kwargsrepr"), printable(body, keeps="\n\t")
    return _plain(args), _plain(kwargs), _plain([args, kwargs, embed])


def _plain(value: Any) -> Any:
    """Return *value* as JSON has it; what JSON has not, as its repr."""
    try:
        return json.loads(json.dumps(value, default=repr))
    except (TypeError, ValueError):
        return repr(value)
