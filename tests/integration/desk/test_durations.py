"""Every command takes a length of time as operators write it: 90, 15m, 2h, 3d."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from celery_reliable.operations import Desk
from celery_reliable.operations.cli import reliable
from celery_reliable.operations.cli.command import Duration
from tests.integration.conftest import Project


def options(group: click.Group) -> Iterator[tuple[click.Command, click.Option]]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from options(command)
        else:
            yield from ((command, o) for o in command.params if isinstance(o, click.Option))


def test_no_option_wants_seconds_alone() -> None:
    # A rate is so many a second.
    floats = {
        f"{command.name} {option.opts[0]}"
        for command, option in options(reliable)
        if isinstance(option.type, (click.FloatRange, click.types.FloatParamType))
    }
    assert floats == {"replay --rate", "discard --rate"}
    durations = [option for _, option in options(reliable) if isinstance(option.type, Duration)]
    assert len(durations) > 10
    for option in durations:
        assert option.type.convert("2m", option, None) == 120


@pytest.mark.parametrize(
    ("said", "seconds"), [("15m", 900), ("2h", 7200), ("90", 90), ("0.5", 0.5)]
)
def test_an_order_holds_for_as_long_as_is_said(
    project: Project, desk: Desk, said: str, seconds: float
) -> None:
    calling = SimpleNamespace(app=project.app, no_color=True)

    told = CliRunner().invoke(reliable, ["pause", "mail", "--later", "--for", said], obj=calling)

    assert told.exit_code == 0, told.output
    (order,) = desk.orders.all()
    assert order.until is not None
    assert order.given_at is not None
    held = order.until - order.given_at
    assert held.total_seconds() == pytest.approx(seconds, abs=0.005)
    for wrong in ("soon", "0", "-1", "15 min", "nan"):
        told = CliRunner().invoke(reliable, ["pause", "mail", "--for", wrong], obj=calling)
        assert told.exit_code == 2
