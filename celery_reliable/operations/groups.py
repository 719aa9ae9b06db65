"""Dead letters in pages, and by group: what died of the same."""

from __future__ import annotations

from dataclasses import dataclass

from celery import Celery

from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger
from celery_reliable.model import DeadLetter, Group, GroupOfLetters
from celery_reliable.operations import shapes
from celery_reliable.operations.filters import OF_GROUPS, Filter
from celery_reliable.operations.letter_walks import LetterWalk
from celery_reliable.operations.pages import Page, Position
from celery_reliable.operations.views import group_view
from celery_reliable.recovery import MOST_BYTES

__all__ = ["GroupsOfLetters", "LetterPages", "UnknownGroup"]

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


class UnknownGroup(ReliableError, LookupError):
    """There is no group of dead letters with this id."""


@dataclass(frozen=True)
class GroupsOfLetters:
    """The groups that fit, the largest first.

    Attributes:
        groups: not all of them where there are thousands.
        letters: how many dead letters there are, in whatever group.
        grouped: of how many the group is known; passes find it out, 1 000 letters each.
    """

    groups: tuple[GroupOfLetters, ...]
    letters: int
    grouped: int

    @property
    def is_complete(self) -> bool:
        """Whether the group of each letter is known."""
        return self.grouped == self.letters

    def as_dict(self) -> shapes.Groups:
        """The same as plain JSON values."""
        return {
            "groups": [group_view(one) for one in self.groups],
            "letters": self.letters,
            "grouped": self.grouped,
        }


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
    ) -> Page[DeadLetter]:
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
            found.append(letter)
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

    def groups(self, wanted: Filter | None = None) -> GroupsOfLetters:
        """Return the groups that fit, by task, reason, exception, cause and text.

        Raises BadFilter for the rest of a filter, which is about single letters.
        """
        filter_ = wanted or Filter()
        filter_.check(
            "queue",
            "object_id",
            "worker",
            "older_than_seconds",
            "newer_than_seconds",
            why="the letters of a group do not have this in common. A list of letters has them.",
        )
        state = self._ledger.groups.catch_up(_CAUGHT_UP_AT_ONCE)
        found = [one for one in self._ledger.groups.counts() if filter_.fits_group(one.group)]
        return GroupsOfLetters(tuple(found), state.letters, min(state.grouped, state.letters))


def _may_have(group: Group, wanted: Filter) -> bool:
    """Whether a group may have letters that fit.  Its exception is a type's name, or nothing; the
    name of its task may be cut.
    """
    return Filter(
        task=wanted.task if len(group.task) < _LONGEST_WHOLE else None,
        reason=wanted.reason,
        exception=wanted.exception if group.exception else None,
    ).fits_group(group)
