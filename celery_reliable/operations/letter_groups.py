"""Dead letters by what they died of."""

from __future__ import annotations

from dataclasses import asdict

from celery_reliable.exceptions import ReliableError
from celery_reliable.model import Group
from celery_reliable.operations import views
from celery_reliable.operations.filters import EVERYTHING, OF_GROUPS, Filter
from celery_reliable.operations.part import Part
from celery_reliable.operations.words import moment

__all__ = ["LetterGroups", "UnknownGroup"]

#: So many groups are walked at once; among more, all letters are looked at.
_MOST_GROUPS = 50


class UnknownGroup(ReliableError, LookupError):
    """There is no group of dead letters with this id."""


class LetterGroups(Part):
    """What dead letters died of.  Raises what the ledger raises; each read is bounded."""

    def fitting(self, wanted: Filter) -> list[str] | None:
        """Return groups outside of which no letter fits; None where there are too many."""
        if wanted.given.keys().isdisjoint(OF_GROUPS):
            return None
        counts = self.ledger.groups.counts()
        found = [one.group.id for one in counts if _may_have(one.group, wanted)]
        return found if len(found) <= _MOST_GROUPS else None

    def get(self, group_id: str) -> Group:
        """Return what the letters of a group have in common.  Raises UnknownGroup."""
        found = self.ledger.groups.find(group_id)
        if found is None:
            raise UnknownGroup(
                f"There is no group {group_id[:50]!r} of dead letters (any more). "
                "`celery -A … reliable dead-letters groups` shows those that there are."
            )
        return found

    def all(self, filter_: Filter = EVERYTHING) -> views.Groups:
        """Group dead letters by task, reason, cause and exception, the largest group first."""
        found = [
            views.Group(
                group=one.group.id,
                count=one.count,
                **asdict(one.group),
                first_at=moment(one.first_ms),
                last_at=moment(one.last_ms),
                example=one.example_id,
            )
            for one in self.ledger.groups.counts()
            if filter_.fits_group(one.group)
        ]
        return views.Groups(tuple(found), self.ledger.count_dead())


def _may_have(group: Group, wanted: Filter) -> bool:
    """Whether a group may have letters that fit.  Its exception is a type's name, or nothing."""
    return Filter(
        task=wanted.task,
        reason=wanted.reason,
        exception=wanted.exception if group.exception else None,
    ).fits_group(group)
