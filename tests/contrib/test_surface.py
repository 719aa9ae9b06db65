"""What an operator has to learn: commands, options, pages, addresses, metrics, settings."""

from __future__ import annotations

import click

from celery_reliable import ReliableConfig
from celery_reliable.operations import ACTS, QUERIES
from celery_reliable.operations.cli import reliable
from celery_reliable.options.definition import OPTIONS
from docs.writing import fleet_metrics, walk

#: It was 304 at the first count; two thirds of that.
_MOST = 202


def test_what_an_operator_has_to_learn_does_not_grow() -> None:
    # It imports what only a Django project has set up.
    from celery_reliable.contrib.django.admin import PAGES

    commands = [command for _, command in walk(reliable, ())]
    options = [
        one
        for command in (reliable, *commands)
        for one in command.params
        if isinstance(one, click.Option)
    ]
    paths = [one for one in (*QUERIES, *ACTS) if one.path]
    metrics = list(fleet_metrics())
    counted = (commands, options, PAGES, paths, metrics, ReliableConfig.names(), OPTIONS)

    assert sum(map(len, counted)) <= _MOST, list(map(len, counted))
