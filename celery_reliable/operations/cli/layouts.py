"""How the result of an operation looks at a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from celery_reliable.clock import span
from celery_reliable.operations.catalog import Items
from celery_reliable.operations.cli.command import Call
from celery_reliable.operations.cli.printing import (
    console_of,
    print_list,
    print_pairs,
    shown,
    to_second,
)
from celery_reliable.operations.pages import Page
from celery_reliable.operations.views import (
    FATES,
    Audited,
    Done,
    Entry,
    Group,
    Groups,
    Happening,
    Moved,
    Object,
    Order,
    Queue,
    Revoked,
    Run,
    RunMember,
    Task,
    TaskInFull,
    Worker,
    as_json,
)
from celery_reliable.operations.words import at, counted, printable

__all__ = ["tell"]

_MOST_NAMED = 20


@dataclass(frozen=True)
class _Table:
    """How many of one kind look: a row for each, and lines below it."""

    titles: Sequence[str]
    row: Callable[[Any], Sequence[str]]
    about: Callable[[Any], list[str]] = lambda one: []


def tell(found: Any, call: Call) -> None:
    """Print the result of a call for people."""
    _LAYOUTS.get(type(found), _figures)(found, call)


def _print(call: Call, items: Sequence[Any]) -> None:
    if items:
        table = _TABLES[type(items[0])]
        print_list(
            console_of(call.ctx),
            table.titles,
            [table.row(one) for one in items],
            [table.about(one) for one in items],
        )


def _list(found: Items[Any] | Page[Any], call: Call) -> None:
    _print(call, found.items)
    said = counted(len(found.items), call.operation.noun)
    if isinstance(found, Page):
        said += f", {found.looked_at} looked at"
    click.echo(said)
    if isinstance(found, Page) and not found.is_last:
        click.echo(f"There may be more:\n--cursor {found.cursor}", err=True)


def _about_worker(one: Worker) -> list[str]:
    said = [f"pid {one.pid}, {one.pool}" if one.pid else one.pool]
    if one.no_witness:
        said.append(
            f"Without a witness a death shows only when the lease has run out. {one.no_witness}"
        )
    if one.slots is not None:
        said.append(f"runs {one.running} of {one.slots}, consumes {', '.join(one.queues)}")
    if one.unacked is not None:
        said.append(f"was delivered {one.unacked} and has not acknowledged them")
    if one.state != "alive":
        said.append(f"{one.cause or one.state} for {span(-one.seconds_left)}")
    said += [
        f"{run.name}[{run.task_id}]" + (f" since {at(run.since)}" if run.since else "")
        for run in one.runs[:_MOST_NAMED]
    ]
    if one.suspect:
        said.append(f"{one.suspect} may have killed another worker: it runs alone of such")
    if one.opening:
        said.append(f"opens the message of {one.opening}, which came back from a dead worker")
    return said


def _about_object(one: Object) -> list[str]:
    lines = [one.object_name] if one.object_name != one.object_key else []
    if one.has_places:
        line = f", {one.in_line} in line" if one.in_line else ""
        lines.append(f"{len(one.holders)} of {one.places} places taken{line}")
    elif one.is_free:
        lines.append("free")
    for holder in one.holders:
        where = f", on {holder.worker.rpartition('/')[0]}" if holder.worker else ""
        said = f"{holder.name}[{holder.task_id}], {holder.state or 'has ended'}{where}"
        if one.kept_seconds is not None:
            said = f"kept after {holder.task_id} for {one.kept_seconds:.0f} s yet"
        lines.append(said)
    lines += [f"waits: {task_id}" for task_id in one.waiters]
    return [*lines, "There may be more that wait."] if one.has_more else lines


def _about_group(one: Group) -> list[str]:
    died_of = ", ".join(filter(None, (one.reason, one.cause, one.exception)))
    return [f"{one.task or '(not readable)'}: {died_of}"]


def _about_order(one: Order) -> list[str]:
    over = [] if one.in_force else ["It is over, and what it has parked is being sent."]
    return [f"{one.sentence}.", *over]


_TABLES: dict[type, _Table] = {
    Task: _Table(
        ("task id", "state", "since (UTC)"),
        lambda one: (one.task_id, one.state, to_second(one.why.since)),
        lambda one: [one.name or "(no name)", one.why.sentence],
    ),
    Object: _Table(
        ("object", "since (UTC)"),
        lambda one: (one.object_key, to_second(one.holders[0].since if one.holders else None)),
        _about_object,
    ),
    Group: _Table(
        ("group", "letters", "first (UTC)", "last (UTC)"),
        lambda one: (one.group, str(one.count), to_second(one.first_at), to_second(one.last_at)),
        _about_group,
    ),
    Worker: _Table(
        ("worker", "state", "lease left", "runs", "witness"),
        lambda one: (
            one.worker,
            one.condition,
            f"{one.seconds_left:.1f} s" if one.state == "alive" else "",
            str(one.claims),
            "on" if one.witness else "off",
        ),
        _about_worker,
    ),
    Queue: _Table(
        ("queue", "waiting", "oldest"),
        lambda one: (one.name, one.waiting, one.oldest),
        lambda one: [f"consumed by {', '.join(one.workers)}"] if one.workers else [],
    ),
    Order: _Table(
        ("order", "what", "parked", "known to"),
        lambda one: (
            one.id,
            f"{one.kind.value} {one.target}",
            str(one.parked),
            counted(one.heard, "worker"),
        ),
        _about_order,
    ),
    Run: _Table(
        ("run", "since (UTC)", "missing"),
        lambda one: (one.run, to_second(one.begun_at), str(one.missing)),
        lambda one: [one.sentence],
    ),
    RunMember: _Table(
        ("member", "worker", "state", "result"),
        lambda one: (one.task_id, one.worker, one.state, one.result),
    ),
    Happening: _Table(
        ("at (UTC)", "what", "task id"),
        lambda one: (to_second(one.at), one.kind, one.task_id),
        lambda one: [one.name, one.sentence],
    ),
    Audited: _Table(
        ("act", "at (UTC)", "what", "done"),
        lambda one: (one.run, to_second(one.at), f"{one.act}, {one.phase}", str(one.done)),
        lambda one: [f"{one.by}: {json.dumps(one.about)}", one.problem],
    ),
    Entry: _Table(
        ("at (UTC)", "what", "attempt"),
        lambda one: (to_second(one.at), one.what, str(one.attempt or "")),
        lambda one: [
            f"{name}: {value}" for name in ("cause", "worker") if (value := getattr(one, name))
        ],
    ),
}


def _figures(found: Any, call: Call) -> None:
    """Print the fields that are not empty: most headers of most messages say nothing."""
    told = found if isinstance(found, dict) else as_json(found)
    pairs: list[tuple[str, str]] = []
    nothing: tuple[Any, ...] = (None, "", False, [], {}, [None, None])
    for name, value in told.items():
        title = name.replace("_", " ")
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
    told["killed by"] = told.pop("death")
    _figures(told, call)
    click.echo()
    _print(call, found.history)
    if found.traceback:
        # No line of it begins where a line of ours does.
        click.echo()
        click.echo(textwrap.indent(printable(found.traceback, keeps="\n\t"), "  "))


def _run(found: Run, call: Call) -> None:
    console_of(call.ctx).print(printable(found.sentence))
    click.echo()
    _print(call, found.members)


def _groups(found: Groups, call: Call) -> None:
    _print(call, found.groups)
    click.echo(f"{counted(len(found.groups), 'group')} of {counted(found.letters, 'dead letter')}")
    if not found.is_complete:
        click.echo(f"The group is known of {found.grouped} so far; ask again.", err=True)


def _acted(found: Done | Moved | Revoked, call: Call) -> None:
    """Say to how many something was done, and what became of the others."""
    would = "would be " if found.is_dry_run else ""
    at_least = "at least " if found.is_dry_run and not getattr(found, "is_whole", True) else ""
    click.echo(f"{at_least}{counted(found.done, call.operation.noun)} {would}{call.operation.verb}")
    for name, words in FATES.items():
        if value := getattr(found, name, None):
            ids = ", ".join(value) if isinstance(value, tuple) else value
            click.echo(printable(f"{words}: {ids}"))
    if not isinstance(found, Done):
        with call.opened() as desk:
            for task_id in found.gone:
                click.echo(printable(desk.tasks.get(task_id).why.sentence))
    else:
        if found.problem:
            click.echo(printable(found.problem), err=True)
        if not found.is_whole and not found.is_dry_run:
            click.echo(f"More may be left. To go on: --before {as_json(found.before)}", err=True)


_LAYOUTS: dict[type, Callable[[Any, Call], None]] = {
    Items: _list,
    Page: _list,
    Object: lambda found, call: _print(call, [found]),
    Order: lambda found, call: _print(call, [found]),
    TaskInFull: _task,
    Run: _run,
    Groups: _groups,
    Done: _acted,
    Revoked: _acted,
    Moved: _acted,
}
