"""The pages of dead letters: a list, their groups, and one of them."""

from __future__ import annotations

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.views.decorators.debug import sensitive_variables

from celery_reliable.contrib.django.desk.forms import filter_of, pages_of
from celery_reliable.contrib.django.desk.visits import Visit, quoted, shown
from celery_reliable.operations import Right, full_view

__all__ = ["groups_page", "letter_page", "letters_page"]

#: Characters of a value in a list.
_LONGEST = 300
#: Groups on one page, the largest.
_MOST_GROUPS = 200


def letters_page(visit: Visit) -> HttpResponse:
    """List dead letters that fit, the latest first."""
    given = visit.request.GET
    asked = filter_of("dead_letters", given)
    page = pages_of("dead_letters", visit.desk, asked)
    letters, cursor = page.items, page.cursor
    views = []
    for letter in letters:
        link = visit.link("change", letter.task_id)
        views.append({**shown(letter, _LONGEST), "link": link, "quoted": quoted(letter.task_id)})
    is_first = not given.get("cursor")
    context = {
        "title": "Dead letters",
        "letters": views,
        "count": visit.desk.letters.count(),
        "asked": asked,
        "group": given.get("group", ""),
        "next": asked.query(cursor=cursor) if cursor else "",
        "is_first": is_first,
        "all": asked.query() or "all=on",
        "fit": f"{'at least ' if cursor else ''}{len(letters)}" if is_first else "",
        "problem": shown(asked.problem),
    }
    return visit.render("list", context, "changelist", 400 if asked.problem else 200)


def groups_page(visit: Visit) -> HttpResponse:
    """List groups of dead letters, the largest first."""
    asked = filter_of("dead_letter_groups", visit.request.GET)
    asked.is_valid()
    found = visit.desk.letter_pages.groups(*asked.given.values())
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
        "problem": shown(asked.problem),
    }
    return visit.render("groups", context, "groups", 400 if asked.problem else 200)


@sensitive_variables()
def letter_page(visit: Visit, object_id: str) -> HttpResponse:
    """Show one dead letter; its arguments when somebody asks who may see them."""
    task_id = unquote(object_id)
    with_arguments = "arguments" in visit.request.GET
    if with_arguments and not visit.may(Right.SEE_ARGUMENTS):
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
    }
    return visit.render("letter", context, "changelist")
