"""The pages of dead letters: a list, their groups, and one of them."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.views.decorators.debug import sensitive_variables

from celery_reliable.contrib.django.desk.forms import AskForm, parameters_of
from celery_reliable.contrib.django.desk.visits import Visit, quoted, shown
from celery_reliable.operations import Right, full_view, gathered

__all__ = ["groups_page", "letter_page", "letters_page"]

_PAGE = 50
#: A list of what fits looks for so long; then it says where it goes on.
_LOOK_SECONDS = 2.0
#: Characters of a value in a list.
_LONGEST = 300
#: Groups on one page, the largest.
_MOST_GROUPS = 200


def letters_page(visit: Visit, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """List dead letters that fit, the latest first."""
    given = visit.request.GET
    asked = AskForm(parameters_of("dead_letters", "filter", "group"), given)
    cursor, letters = "", []
    count = visit.desk.letters.count()
    if not asked.problems:
        group = asked.values.get("group", "")
        page = gathered(
            lambda cursor, limit: visit.desk.letter_pages.page(
                asked.filter, group=group, cursor=cursor, limit=limit
            ),
            given.get("cursor", ""),
            _PAGE,
            _LOOK_SECONDS,
        )
        letters, cursor = list(page.items), page.cursor
    views = []
    for letter in letters:
        link = visit.link("change", letter.task_id)
        views.append({**shown(letter, _LONGEST), "link": link, "quoted": quoted(letter.task_id)})
    is_first = not given.get("cursor")
    context = {
        "title": "Dead letters",
        "letters": views,
        "count": count,
        "asked": asked,
        "group": asked.values.get("group", ""),
        "next": asked.query(cursor=cursor) if cursor else "",
        "is_first": is_first,
        "fit": f"{'at least ' if cursor else ''}{len(letters)}" if is_first else "",
        "problem": " ".join(asked.problems),
        **(extra_context or {}),
    }
    return visit.render("list", context, "changelist", 400 if asked.problems else 200)


def groups_page(visit: Visit) -> HttpResponse:
    """List groups of dead letters, the largest first."""
    asked = AskForm(parameters_of("dead_letter_groups"), visit.request.GET)
    found = visit.desk.letter_pages.groups(asked.filter)
    context = {
        "title": "Dead letters by group",
        "asked": asked,
        "groups": [
            {
                **shown(one, _LONGEST),
                "link": visit.link("changelist", group=one.group),
                "example_link": visit.link("change", one.example) if one.example else "",
            }
            for one in found.groups[:_MOST_GROUPS]
        ],
        "more": max(0, len(found.groups) - _MOST_GROUPS),
        "count": found.letters,
        "grouped": found.grouped,
        "is_complete": found.is_complete,
        "problem": " ".join(asked.problems),
    }
    return visit.render("groups", context, "groups", 400 if asked.problems else 200)


@sensitive_variables()
def letter_page(
    visit: Visit, object_id: str, extra_context: dict[str, Any] | None = None
) -> HttpResponse:
    """Show one dead letter; its arguments when somebody asks who may see them."""
    task_id = unquote(object_id)
    with_arguments = "arguments" in visit.request.GET
    may_see = visit.may(Right.SEE_ARGUMENTS)
    if with_arguments and not may_see:
        raise PermissionDenied
    letter = visit.desk.letters.get(task_id)
    view = shown(full_view(letter, with_arguments=with_arguments))
    context = {
        "title": f"Dead letter {shown(task_id, _LONGEST)}",
        "letter": view,
        "quoted": quoted(task_id),
        "task_link": visit.link("changelist", task=letter.name[:_LONGEST]),
        "group_link": visit.link("changelist", group=view["group"]),
        "with_arguments": with_arguments,
        "edit_link": visit.link("edit", task_id) if may_see else "",
        **(extra_context or {}),
    }
    return visit.render("letter", context, "changelist")
