"""How the result of an operation looks at a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from celery_reliable.clock import span
from celery_reliable.operations.acts import Discarded, ReplayedEdited, Swept, resume
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
from celery_reliable.operations.queries import DeadLetterPage
from celery_reliable.operations.queues import Purged
from celery_reliable.operations.uninstall import Released
from celery_reliable.operations.views import (
    Audited,
    DeadLetter,
    DeadLetterInFull,
    Done,
    Groups,
    Holder,
    IfRunning,
    LetterEntry,
    Moved,
    Object,
    Order,
    Queue,
    Replayed,
    Revoked,
    Run,
    Task,
    TaskInFull,
    Worker,
    as_json,
)
from celery_reliable.operations.words import at, counted, printable

__all__ = ["tell"]

_LONGEST_EXCEPTION = 200
_MOST_NAMED = 20


@dataclass(frozen=True)
class _Table:
    """How many of one kind look: what they are called, a row for each, and lines below it."""

    noun: str
    titles: Sequence[str]
    row: Callable[[Any], Sequence[str]]
    about: Callable[[Any, Mapping[str, Any]], list[str]] = lambda one, given: []


def tell(found: Any, call: Call) -> None:
    """Print the result of a call for people."""
    _LAYOUTS[type(found)](found, call)


def _list(found: Items[Any] | Page[Any], call: Call) -> None:
    table, console, n = _TABLES[call.operation.result], console_of(call.ctx), len(found.items)
    if found.items:
        print_list(
            console,
            table.titles,
            [table.row(one) for one in found.items],
            [table.about(one, call.given) for one in found.items],
        )
    if isinstance(found, DeadLetterPage):
        click.echo(f"{n} of {counted(found.total, table.noun)}")
    elif isinstance(found, Page):
        click.echo(f"{counted(n, table.noun)}, {found.looked_at} looked at")
    else:
        click.echo(counted(n, table.noun))
    if isinstance(found, Page) and not found.is_last:
        click.echo(f"There may be more:\n--cursor {found.cursor}", err=True)


def _about_worker(one: Worker, given: Mapping[str, Any]) -> list[str]:
    said = []
    if one.no_witness:
        said.append(
            f"Without a witness a death shows only when the lease has run out. {one.no_witness}"
        )
    if not given.get("unacked"):
        return said
    said.append(f"pid {one.pid}, {one.pool}" if one.pid else one.pool)
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


def _about_object(one: Object, given: Mapping[str, Any]) -> list[str]:
    lines = [one.object_name] if one.object_name != one.object_key else []
    if one.has_places:
        line = f", {one.in_line} in line" if one.in_line else ""
        lines.append(f"{len(one.holders)} of {one.places} places taken{line}")
    elif one.is_free:
        lines.append("free")
    if one.kept_seconds is not None:
        lines.append(f"kept after {one.holder} for {one.kept_seconds:.0f} s yet")
    else:
        lines += [_holder(holder) for holder in one.holders]
    lines += [f"waits: {task_id}" for task_id in one.waiters]
    if one.has_more:
        lines.append("There may be more that wait.")
    return lines


def _holder(one: Holder) -> str:
    where = f", on {one.worker.rpartition('/')[0]}" if one.worker else ""
    return f"{one.name}[{one.task_id}], {one.state or 'has ended'}{where}"


def _about_letter(one: DeadLetter, given: Mapping[str, Any]) -> list[str]:
    died_of = textwrap.shorten(one.exception, _LONGEST_EXCEPTION, placeholder="…")
    return [f"{one.name or '(not readable)'}, attempts: {one.attempts}", died_of]


def _about_order(one: Order, given: Mapping[str, Any]) -> list[str]:
    over = [] if one.in_force else ["It is over, and what it has parked is being sent."]
    return [f"{one.sentence}.", *over]


_OBJECTS = _Table(
    "object",
    ("object", "since (UTC)"),
    lambda one: (one.object_key, to_second(one.since)),
    _about_object,
)
_TABLES: dict[Any, _Table] = {
    Page[Task]: _Table(
        "task",
        ("task id", "state", "since (UTC)"),
        lambda one: (one.task_id, one.state, to_second(one.why.since)),
        lambda one, given: [one.name or "(no name)", one.why.sentence],
    ),
    Page[Object]: _OBJECTS,
    DeadLetterPage: _Table(
        "dead letter",
        ("task id", "reason", "buried (UTC)"),
        lambda one: (one.task_id, one.reason, to_second(one.buried_at)),
        _about_letter,
    ),
    Items[Worker]: _Table(
        "worker",
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
    Items[Queue]: _Table(
        "queue",
        ("queue", "waiting", "oldest"),
        lambda one: (
            one.name,
            one.waiting,
            "" if one.oldest_seconds is None else span(one.oldest_seconds),
        ),
        lambda one, given: [f"consumed by {', '.join(one.workers)}"] if one.workers else [],
    ),
    Items[Order]: _Table(
        "order",
        ("order", "what", "parked", "known to"),
        lambda one: (
            one.id,
            f"{one.kind.value} {one.target}",
            str(one.parked),
            counted(one.heard, "worker"),
        ),
        _about_order,
    ),
    Items[Run]: _Table(
        "run",
        ("run", "since (UTC)", "missing"),
        lambda one: (one.run, to_second(one.begun_at), str(one.missing)),
        lambda one, given: [one.sentence],
    ),
    Items[Audited]: _Table(
        "entry",
        ("act", "at (UTC)", "what", "done"),
        lambda one: (one.run, to_second(one.at), f"{one.act}, {one.phase}", str(one.done)),
        lambda one, given: [f"{one.by}: {json.dumps(one.about)}", one.problem],
    ),
}


def _items(found: Items[Any], call: Call) -> None:
    if call.operation.call is not resume:
        _list(found, call)
    for order in found.items if call.operation.call is resume else ():
        click.echo(printable(f"Order {order.id} has ended: {order.target} goes on."))


def _object(found: Object, call: Call) -> None:
    print_list(
        console_of(call.ctx), _OBJECTS.titles, [_OBJECTS.row(found)], [_about_object(found, {})]
    )


def _task(found: TaskInFull, call: Call) -> None:
    console = console_of(call.ctx)
    console.print(printable(found.why.sentence))
    if found.state == "absent" and not found.history:
        return
    click.echo()
    told = as_json(found)
    del told["history"]
    told["waits for"] = told.pop("why")["kind"]
    _print_pairs(console, {name.replace("_", " "): value for name, value in told.items()})
    _print_history(console, found.history)


def _dead_letter(found: DeadLetterInFull, call: Call) -> None:
    console, told = console_of(call.ctx), as_json(found)
    for name in ("history", "traceback"):
        del told[name]
    told["killed by"] = told.pop("death")
    _print_pairs(console, told)
    _print_history(console, found.history)
    if found.traceback:
        # No line of it begins where a line of ours does.
        click.echo()
        click.echo(textwrap.indent(printable(found.traceback, keeps="\n\t"), "  "))


def _print_pairs(console: Any, told: Mapping[str, Any]) -> None:
    """Print what is not empty: most headers of most messages say nothing."""
    pairs: list[tuple[str, str]] = []
    nothing: tuple[Any, ...] = (None, "", False, [], {}, [None, None])
    for name, value in told.items():
        if isinstance(value, dict):
            said = [f"{each}: {shown(one)}" for each, one in value.items() if one not in nothing]
            pairs += [("" if number else name, line) for number, line in enumerate(said)]
        elif value not in (None, "", []):
            pairs.append((name, shown(value)))
    print_pairs(console, pairs)


def _print_history(console: Any, history: Sequence[LetterEntry]) -> None:
    if history:
        click.echo()
        print_list(
            console,
            ("at (UTC)", "what", "attempt"),
            [(to_second(one.at), one.what, str(one.attempt or "")) for one in history],
            [
                [
                    f"{name}: {value}"
                    for name in ("cause", "worker")
                    if (value := getattr(one, name))
                ]
                for one in history
            ],
        )


def _about_entry(one: LetterEntry) -> list[str]:
    said = {"cause": one.cause, "worker": one.worker}
    return [f"{name}: {value}" for name, value in said.items() if value]


def _run(found: Run, call: Call) -> None:
    console = console_of(call.ctx)
    console.print(printable(found.sentence))
    click.echo()
    print_list(
        console,
        ("member", "worker", "state", "result"),
        [(one.task_id, one.worker, one.state, one.result) for one in found.members],
        [[]] * len(found.members),
    )


def _groups(found: Groups, call: Call) -> None:
    if found.groups:
        print_list(
            console_of(call.ctx),
            ("group", "letters", "first (UTC)", "last (UTC)"),
            [
                (one.group, str(one.count), to_second(one.first_at), to_second(one.last_at))
                for one in found.groups
            ],
            [
                [
                    f"{one.task or '(not readable)'}: "
                    + ", ".join(filter(None, (one.reason, one.cause, one.exception)))
                ]
                for one in found.groups
            ],
        )
    click.echo(f"{counted(len(found.groups), 'group')} of {counted(found.letters, 'dead letter')}")
    if not found.is_complete:
        click.echo(f"The group is known of {found.grouped} so far; ask again.", err=True)


def _replayed(found: Replayed, call: Call) -> None:
    click.echo(
        f"Replayed {printable(found.task_id)}: its next run is attempt {found.next_attempt}."
    )
    if not found.sent:
        click.echo(
            f"Its message could not be sent yet ({printable(found.problem)}). Nothing is lost: "
            "the sweeper sends it when the broker is back.",
            err=True,
        )


def _replayed_edited(found: ReplayedEdited, call: Call) -> None:
    task_id = printable(found.task_id)
    click.echo(f"Published {found.new_task_id} in place of {task_id}, which is discarded.")


def _done(found: Done, call: Call) -> None:
    would = "would be " if found.is_dry_run else ""
    at_least = "" if found.is_whole or not found.is_dry_run else "at least "
    others = [
        f"{count} {what}"
        for count, what in (
            (found.gone, "gone already"),
            (found.failed, "could not be"),
            (found.unsent, "not sent yet"),
        )
        if count
    ]
    done = f"{at_least}{counted(found.done, call.operation.noun)} {would}{call.operation.verb}"
    click.echo(", ".join([done, *others]))
    if found.problem:
        click.echo(printable(found.problem), err=True)
    if not found.is_whole and not found.is_dry_run:
        click.echo(f"More may be left. To go on: --before {as_json(found.before)}", err=True)


def _ended(found: Revoked, call: Call) -> None:
    runs = "to its end" if found.if_running is IfRunning.FINISH else "and is to stop"
    _print_acted_on(
        found,
        call,
        {
            f"runs {runs}": found.running,
            "is a dead letter: discard it": found.dead,
            "replaced itself by a canvas: revoke its members": found.replaced,
        },
    )


def _moved(found: Moved, call: Call) -> None:
    _print_acted_on(
        found,
        call,
        {
            "runs elsewhere, and is to stop there": found.stopped,
            "runs there already": found.stays,
            "is a dead letter, or replaced itself by a canvas": found.refused,
        },
    )


def _print_acted_on(
    found: Moved | Revoked, call: Call, abouts: Mapping[str, Iterable[str]]
) -> None:
    would = "would be " if found.is_dry_run else ""
    click.echo(f"{counted(found.done, call.operation.noun)} {would}{call.operation.verb}")
    for about, ids in abouts.items():
        for task_id in ids:
            click.echo(f"{printable(task_id)}: {about}")
    if found.gone:
        with call.opened() as desk:
            for task_id in found.gone:
                click.echo(printable(f"{task_id}: {desk.tasks.get(task_id).why.sentence}"))


def _order(found: Order, call: Call) -> None:
    click.echo(printable(f"Order {found.id}: {found.sentence}."))
    for note in found.notes:
        click.echo(printable(note), err=True)


def _swept(found: Swept, call: Call) -> None:
    if found.report is None:
        click.echo("A pass runs, or has just finished: none was needed.")
        return
    _figures(found.report, call)


def _figures(found: Any, call: Call) -> None:
    for name, value in as_json(found).items():
        click.echo(f"{name.replace('_', ' ')}: {value}")


def _purged(found: Purged, call: Call) -> None:
    removed, cancelled = counted(found.messages, "message"), counted(found.records, "task")
    click.echo(f"{removed} removed, {cancelled} cancelled")


_LAYOUTS: dict[type, Callable[[Any, Call], None]] = {
    Items: _items,
    Page: _list,
    DeadLetterPage: _list,
    Object: _object,
    TaskInFull: _task,
    DeadLetterInFull: _dead_letter,
    Run: _run,
    Groups: _groups,
    Replayed: _replayed,
    ReplayedEdited: _replayed_edited,
    Discarded: lambda found, call: click.echo(f"Discarded {printable(found.task_id)}."),
    Done: _done,
    Revoked: _ended,
    Moved: _moved,
    Order: _order,
    Swept: _swept,
    Purged: _purged,
    Released: _figures,
}
