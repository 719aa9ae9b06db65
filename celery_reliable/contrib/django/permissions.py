"""Which of Django's permissions is needed for what: the one place that says so, for every door."""

from __future__ import annotations

from typing import Any

from celery_reliable.operations import Right

__all__ = ["NEEDED", "may"]


#: Any one of these is enough.  Who may change what the admin shows may see it, as in Django's own
#: pages.
NEEDED: dict[Right, tuple[str, ...]] = {
    Right.VIEW: ("celery_reliable.view_deadletter", "celery_reliable.change_deadletter"),
    Right.REPLAY: ("celery_reliable.change_deadletter",),
    Right.DISCARD: ("celery_reliable.delete_deadletter",),
    Right.OPERATE: ("celery_reliable.operate",),
    Right.SEE_ARGUMENTS: ("celery_reliable.see_arguments",),
}


def may(user: Any, what: Right | str) -> bool:
    """Return whether a user of Django's may do it.  A superuser may do everything, whoever is not
    active nothing.  Raises ValueError for what is no `Right`.
    """
    return any(user.has_perm(name) for name in NEEDED[Right(what)])
