"""How the result of an operation looks at a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import click

from celery_reliable.findings import counted
from celery_reliable.operations.cli.command import Call
from celery_reliable.operations.cli.terminal import (
    WIDEST,
    console_of,
    desk_of,
    print_json,
    print_pairs,
    shown,
)
from celery_reliable.operations.listing import Page
from celery_reliable.operations.messages import printable
from celery_reliable.operations.operation import Items
from celery_reliable.operations.views import (
    FATES,
    Acted,
    Audited,
    Done,
    Entry,
    Group,
    Groups,
    Happening,
    Object,
    Order,
    Revoked,
    Run,
    RunMember,
    Task,
    TaskInFull,
    Worker,
    as_json,
)

_INDENT = 4

__all__ = ["Table", "carry_out", "print_items"]


@dataclass(frozen=True)
class Table:
    """How many of one kind look, by the names of their fields."""

    #: The cells of a row.
    row: Sequence[str]
    #: What stands below it: a line for each text, of several texts for each of them.
    lines: Sequence[str] = ()
    #: Below that: a line for each, with its name.
    facts: Sequence[str] = ()

    def about(self, one: Any) -> list[str]:
        """Return what stands below the row of one of them."""
        found: list[str] = []
        for name in self.lines:
            value = attrgetter(name)(one)
            found += map(str, value) if isinstance(value, tuple) else [value]
        told = ((_title(name), attrgetter(name)(one)) for name in self.facts)
        return [*found, *(f"{title}: {_cell(value)}" for title, value in told if value)]


def _title(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, tuple):
        return ", ".join(map(_cell, value))
    return shown(as_json(value))


#: What makes an act exit with 1, though it has ended: it could not do all, or had nothing to do.
_IS_WRONG: Mapping[type, Callable[[Any], object]] = {
    Done: lambda found: found.failed or found.unsent or (found.gone and not found.done),
    Revoked: lambda found: found.failed or not found.done,
}


def carry_out(call: Call) -> None:
    """Run the operation of a call, and print its result."""
    found = call.run()
    if call.is_json:
        print_json(found)
    else:
        _LAYOUTS.get(type(found), _figures)(found, call)
    if _IS_WRONG.get(type(found), lambda one: False)(found):
        call.ctx.exit(1)


def print_items(call: Call, items: Sequence[Any], table: Table | None = None) -> None:
    """Print things of one kind, as all of them look or as a *table*: short cells, and below each
    row the lines about it, over the whole width.  Nothing is cut; of none nothing is printed.
    """
    if not items:
        return
    console = console_of(call.ctx)
    from rich.padding import Padding
    from rich.text import Text

    table = table or _TABLES[type(items[0])]
    rows = [[printable(_cell(attrgetter(name)(one))) for name in table.row] for one in items]
    titles = map(_title, table.row)
    cells = [
        [f"{one} (UTC)" if one.split()[-1] in ("at", "since") else one for one in titles],
        *rows,
    ]
    widths = [min(max(map(len, column)), WIDEST) for column in zip(*cells, strict=True)]
    for row, about in zip(cells, [[], *map(table.about, items)], strict=True):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(Text(line.rstrip(), "bold" if row is cells[0] else ""))
        for said in filter(None, about):
            console.print(Padding(Text(printable(said)), (0, 0, 0, _INDENT)))


def _list(found: Items[Any] | Page[Any], call: Call) -> None:
    print_items(call, found.items)
    said = counted(len(found.items), call.operation.noun)
    if isinstance(found, Page):
        said += f", {found.looked_at} looked at"
    click.echo(said)
    if isinstance(found, Page) and not found.is_last:
        click.echo(f"There may be more:\n--cursor {found.cursor}", err=True)


_TABLES: dict[type, Table] = {
    Task: Table(("task_id", "state", "why.since"), ("name", "why.sentence")),
    Object: Table(
        ("object_key", "in_line"),
        ("object_name", "taken", "holders"),
        ("kept_seconds", "waiters", "has_more"),
    ),
    Group: Table(
        ("group", "count", "first_at", "last_at"), ("task",), ("reason", "cause", "exception")
    ),
    Worker: Table(
        ("worker", "condition", "claims", "witness"),
        ("runs",),
        (*("pid", "pool", "queues", "slots", "running", "cause", "no_witness", "suspect"),),
    ),
    Order: Table(("id", "kind", "in_force", "waiting", "heard"), ("sentence",)),
    Run: Table(("run", "begun_at", "missing"), ("sentence",)),
    RunMember: Table(("task_id", "worker", "state", "result")),
    Happening: Table(("at", "kind", "task_id"), ("name", "sentence")),
    Audited: Table(("run", "at", "act", "phase", "done"), (), ("by", "about", "problem")),
    Entry: Table(("at", "what", "attempt"), (), ("cause", "worker")),
}


def _figures(found: Any, call: Call) -> None:
    """Print the fields that are not empty: most headers of most messages say nothing."""
    pairs: list[tuple[str, str]] = []
    nothing: tuple[Any, ...] = (None, "", False, [], {}, [None, None])
    for name, value in as_json(found).items():
        title = _title(name)
        if isinstance(value, dict):
            said = [f"{each}: {shown(one)}" for each, one in value.items() if one not in nothing]
            pairs += [("" if number else title, line) for number, line in enumerate(said)]
        elif value not in (None, "", []):
            pairs.append((title, shown(value)))
    print_pairs(console_of(call.ctx), pairs)


def _task(found: TaskInFull, call: Call) -> None:
    console_of(call.ctx).print(printable(found.why.sentence))
    if found.state == "absent" and not found.history:
        return
    click.echo()
    told = as_json(found)
    for name in ("history", "traceback"):
        del told[name]
    told["waits_for"] = told.pop("why")["kind"]
    _figures(told, call)
    click.echo()
    print_items(call, found.history)
    if found.traceback:
        # No line of it begins where a line of ours does.
        click.echo()
        click.echo(textwrap.indent(printable(found.traceback, keeps="\n\t"), "  "))


def _run(found: Run, call: Call) -> None:
    console_of(call.ctx).print(printable(found.sentence))
    click.echo()
    print_items(call, found.members)


def _groups(found: Groups, call: Call) -> None:
    print_items(call, found.groups)
    click.echo(f"{counted(len(found.groups), 'group')} of {counted(found.letters, 'dead letter')}")


def _acted(found: Acted, call: Call) -> None:
    """Say to how many something was done, and what became of the others."""
    would = "would be " if found.is_dry_run else ""
    at_least = "at least " if found.is_dry_run and not getattr(found, "is_whole", True) else ""
    click.echo(f"{at_least}{counted(found.done, call.operation.noun)} {would}{call.operation.verb}")
    for name, words in FATES.items():
        if value := getattr(found, name, None):
            ids = ", ".join(value) if isinstance(value, tuple) else value
            click.echo(printable(f"{words}: {ids}"))
    if not isinstance(found, Done):
        with desk_of(call.ctx) as desk:
            for task_id in getattr(found, "gone", ()):
                click.echo(printable(desk.tasks.get(task_id).why.sentence))
    else:
        if found.problem:
            click.echo(printable(found.problem), err=True)
        if not found.is_whole and not found.is_dry_run:
            click.echo(f"More may be left. To go on: --before {as_json(found.before)}", err=True)


_LAYOUTS: dict[type, Callable[[Any, Call], None]] = {
    Items: _list,
    Page: _list,
    Object: lambda found, call: print_items(call, [found]),
    Order: lambda found, call: print_items(call, [found]),
    TaskInFull: _task,
    Run: _run,
    Groups: _groups,
    Done: _acted,
    Revoked: _acted,
}
