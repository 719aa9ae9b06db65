"""Times and lengths as the pages of the desk show them."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.html import format_html

from celery_reliable.operations import span

__all__ = ["moment", "register"]

register = template.Library()


@register.filter
def moment(iso: str | None) -> Any:
    """Show an ISO time to the second; UTC, as the whole desk."""
    if not iso:
        return "–"
    text = str(iso)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        text,
        text[:23].replace("T", " "),
        text[:19].replace("T", " "),
    )


@register.filter
def lasting(seconds: float | None) -> str:
    """Show a length of time in its two largest units."""
    return "–" if seconds is None else span(seconds)
