"""What `top` shows, as lines that fit a terminal: nothing here knows where they are printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from celery_reliable.clock import span
from celery_reliable.findings import Finding
from celery_reliable.operations.happenings import Happening
from celery_reliable.operations.hours import Hour
from celery_reliable.operations.order_words import in_words
from celery_reliable.operations.status import Status
from celery_reliable.operations.tables import printable
from celery_reliable.operations.times import at
from celery_reliable.operations.workers import WorkerView

__all__ = ["Line", "screen"]

#: So many lines everything has room in; of what is there more, more is shown on higher terminals.
_LEAST_HEIGHT = 24
_GAP = "  "
#: A name in a table of more columns is cut to so many characters.
_NAME = 30


@dataclass(frozen=True)
class Line:
    """One line; a terminal that is narrower cuts it."""

    text: str
    style: str = ""


def screen(
    status: Status,
    findings: Sequence[Finding],
    hours: Sequence[Hour],
    happened: Sequence[Happening],
    height: int,
) -> list[Line]:
    """Return at most *height* lines, but not less than some; what is wrong comes first."""
    spare = max(0, height - _LEAST_HEIGHT)
    lines = [
        *_head(status),
        *(
            Line(printable(f"{view.order.kind.value}: {in_words(view.order)}"), "bold")
            for view in status.orders
        ),
        *_wrong(findings, 2 + spare // 8),
        *_queues(status, 2 + spare // 4),
        *_workers(status, 3 + spare // 4),
        *_hours(hours, 3 + spare // 8),
        Line("events", "bold"),
    ]
    room = max(1, height - len(lines))
    return [*lines, *_events(happened[-room:])]


def _head(status: Status) -> Iterator[Line]:
    name = f"{status.app or '(no name)'}, namespace {status.namespace}"
    yield Line(printable(f"{at(status.now_ms)}  {name}  (q leaves)"), "bold")
    counts = status.tasks
    dead = "".join(f", {n} {reason}" for reason, n in status.dead_by_reason.items())
    about = "" if status.is_exact else "about "
    yield Line(
        f"tasks    {counts['running']} running, {about}{counts['queued']} queued, "
        f"{about}{counts['parked']} parked, {counts['dead']} dead{dead and f' ({dead[2:]})'}"
    )
    alive = ", ".join(f"{count} {state}" for state, count in status.workers_by_state.items())
    saturation = "" if status.saturation is None else f", saturation {status.saturation:g}"
    yield Line(f"workers  {alive}; {status.slots} slots{saturation}")
    last = status.last_pass.seconds_ago
    used = status.server.used_bytes
    of = status.server.facts.maxmemory
    memory = "" if used is None else f"; ledger {used / 2**20:.1f} MiB"
    limit = f" of {of / 2**20:.0f}" if memory and of else ""
    yield Line(f"passes   {'never' if last is None else f'{span(last)} ago'}{memory}{limit}")


def _wrong(findings: Sequence[Finding], most: int) -> Iterator[Line]:
    if not findings:
        yield Line("Nothing is wrong.", "green")
    shown = findings if len(findings) <= most else findings[: most - 1]
    for one in shown:
        style = "bold red" if one.level == "error" else "yellow"
        yield Line(
            printable(f"{one.level}: {one.code} {one.name}: {' '.join(one.message.split())}"), style
        )
    if len(shown) < len(findings):
        yield Line(f"and {len(findings) - len(shown)} more: `status` shows them", "yellow")


def _queues(status: Status, most: int) -> list[Line]:
    if status.broker_problem:
        return [Line(printable(f"The queues are not seen: {status.broker_problem}"), "bold red")]
    longest = sorted(status.queues, key=lambda one: -(one.depth or 0))
    return _table(
        ("queue", "waiting", "oldest", "consumed by"),
        [
            (
                one.name,
                one.waiting,
                "" if one.oldest_seconds is None else span(one.oldest_seconds),
                f"{len(one.workers)} workers" if one.workers else "nobody",
            )
            for one in longest
        ],
        most,
    )


def _workers(status: Status, most: int) -> list[Line]:
    # Those first of which somebody may want to know.
    ranks = {"dead": 0, "lapsed": 1}
    found = sorted(
        status.workers,
        key=lambda one: (ranks.get(one.state, 2), one.runs[0].since_ms if one.runs else 2**63),
    )
    return _table(
        ("worker", "state", "runs", "the longest of these"),
        [_worker(status, one) for one in found],
        most,
    )


def _worker(status: Status, one: WorkerView) -> tuple[str, ...]:
    runs = str(max(one.running or 0, one.claims))
    longest = ""
    if one.runs:
        since = one.runs[0].since_ms
        age = f" for {span((status.now_ms - since) / 1000)}" if since else ""
        longest = f"{one.runs[0].name}{age}"
    return (
        one.nodename,
        one.condition,
        runs if one.slots is None else f"{runs} of {one.slots}",
        longest,
    )


def _hours(hours: Sequence[Hour], most: int) -> list[Line]:
    titles = ("hour (UTC)", "began", "ended", "failed", "lost", "recovered", "buried", "died")
    return _table(
        titles,
        [
            (
                f"{at(one.start_ms)[11:16]}",
                *(
                    str(count)
                    for count in (
                        one.started,
                        sum(one.ended.values()),
                        one.failed,
                        sum(one.lost.values()),
                        one.recovered,
                        sum(one.buried.values()),
                        one.workers_died,
                    )
                ),
            )
            for one in reversed(hours[-most:])
        ],
        most,
    )


def _events(happened: Sequence[Happening]) -> Iterator[Line]:
    for one in happened:
        about = "  ".join(filter(None, (one.name, one.task_id[:8], one.sentence)))
        yield Line(printable(f"{at(one.at_ms)[11:19]}  {one.kind}  {about}"))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], most: int) -> list[Line]:
    """Return a title and at most so many rows; the last column may be as long as it is."""
    shown = rows if len(rows) <= most else rows[: most - 1]
    cells = [
        titles,
        *([_short(cell) for cell in row[:-1]] + [printable(row[-1])] for row in shown),
    ]
    widths = [max(len(row[index]) for row in cells) for index in range(len(titles))]
    lines = [
        Line(_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for row in cells
    ]
    lines[0] = Line(lines[0].text, "bold")
    if len(shown) < len(rows):
        lines.append(Line(f"and {len(rows) - len(shown)} more"))
    return lines


def _short(cell: str) -> str:
    text = printable(cell)
    return text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
