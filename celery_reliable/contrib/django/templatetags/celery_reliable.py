"""Links, times and lengths as the pages of the desk show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django import template

from celery_reliable.contrib.django.visits import raw
from celery_reliable.operations import span

__all__ = ["lasting", "link", "moment", "quoted", "register"]

register = template.Library()


@register.simple_tag(takes_context=True)
def link(context: Mapping[str, Any], page: str, *args: str, **query: str) -> Any:
    """Return the address of a page of the desk."""
    return context["visit"].link(page, *args, **query)


@register.filter
def quoted(task_id: str) -> str:
    """Return an id as an input of a form keeps it: a browser changes line ends, and drops NUL."""
    return quote(raw(task_id), safe="")


@register.filter
def moment(iso: str | None) -> str:
    """Show an ISO time to the second; UTC, as the whole desk."""
    return str(iso or "–")[:19].replace("T", " ")


@register.filter
def lasting(seconds: float | None) -> str:
    """Show a length of time in its two largest units."""
    return "–" if seconds is None else span(seconds)
