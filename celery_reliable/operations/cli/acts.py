"""The commands that do something to dead letters: one, a group, those that fit, or all."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import click
from celery.bin.base import CeleryCommand
from click.core import ParameterSource

from celery_reliable.operations.audit import somebody
from celery_reliable.operations.bulk import DEFAULT_RATE, Chosen, Unclear
from celery_reliable.operations.cli.calling import as_json_option, desk_of
from celery_reliable.operations.cli.choosing import (
    TIME,
    filter_of,
    filter_options,
    group_option,
)
from celery_reliable.operations.cli.printing import counted, print_json
from celery_reliable.operations.cli.progress import Progress, interruptible
from celery_reliable.operations.dead_letters import publish_edited
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.views import Done
from celery_reliable.operations.views import as_json as plain
from celery_reliable.operations.words import printable

__all__ = ["discard", "replay"]

#: For so long letters are counted.
_COUNT_SECONDS = 0.7

_all_option = click.option("--all", "all_", is_flag=True, help="All that there are.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Only count them.")
_limit_option = click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
_before_option = click.option(
    "--before", type=TIME, help="Only those that were put aside before; to go on with what was cut."
)
_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
_rate_type = click.FloatRange(min=0, min_open=True)


class _Json(click.ParamType):  # type: ignore[type-arg]
    """JSON of one type."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.name = "json list" if kind is list else "json object"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value."""
        if not isinstance(value, str):
            return value
        try:
            found = json.loads(value)
        except ValueError as exc:
            self.fail(f"This is no JSON: {exc}", param, ctx)
        if not isinstance(found, self._kind):
            self.fail(f"This has to be a {self.name}.", param, ctx)
        return found


@click.command("replay", cls=CeleryCommand)
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@_all_option
@group_option
@filter_options
@_dry_run_option
@click.option(
    "--rate", type=_rate_type, default=DEFAULT_RATE, show_default=True, help="So many a second."
)
@_limit_option
@_before_option
@click.option("--to-queue", default="", help="To this queue instead of their own.")
@click.option(
    "--max-waiting",
    type=click.IntRange(min=1),
    help="Go on only while fewer messages wait in the queue.",
)
@click.option("--args", type=_Json(list), help="Run one ID anew with these arguments (JSON list).")
@click.option("--kwargs", type=_Json(dict), help="The same by name (JSON object).")
@_yes_option
@as_json_option
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    task_ids: tuple[str, ...],
    all_: bool,
    group: str,
    dry_run: bool,
    rate: float,
    limit: int | None,
    before: int | None,
    to_queue: str,
    max_waiting: int | None,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Return dead letters to the back of their queues: by ID, a group, those that fit, or all.

    They keep their ids, and their budgets of losses and retries are fresh.  May be interrupted and
    repeated: what was replayed is no dead letter any more.
    """
    chosen = _chosen(task_ids, all_, group, before, given)
    is_edited = args is not None or kwargs is not None
    if is_edited:
        _check_alone(ctx, task_ids)
    with desk_of(ctx) as desk:
        if dry_run:
            if to_queue:
                desk.letters.check_queue(to_queue)
            _told(_meant(desk, chosen, limit), "would be replayed", as_json)
        elif is_edited:
            _replay_edited(desk, task_ids[0], args, kwargs, to_queue, as_json)
        elif len(task_ids) == 1 and before is None and max_waiting is None:
            _replay_one(desk, task_ids[0], to_queue, as_json)
        else:
            meant = _meant(desk, chosen, limit)
            if all_ and not yes and (meant.done or not meant.is_whole):
                click.confirm(f"Replay {_counted(meant)}?", abort=True, err=True)
            progress = _progress("replayed", meant)
            with interruptible(lambda: progress.to_go_on(limit)), progress:
                done = desk.bulk.replay(
                    chosen,
                    by=somebody(),
                    rate=rate,
                    limit=limit,
                    to_queue=to_queue,
                    max_waiting=max_waiting,
                    progress=progress,
                )
            _told(done, "replayed", as_json)


def _replay_one(desk: Desk, task_id: str, to_queue: str, as_json: bool) -> None:
    with desk.noted("replay", somebody(), {"ids": [task_id], "to_queue": to_queue}):
        done = desk.letters.replay(task_id, to_queue=to_queue, by=somebody())
    if as_json:
        print_json({**plain(done), "replayed": True})
        return
    click.echo(f"Replayed {printable(task_id)}: its next run is attempt {done.next_attempt}.")
    if not done.sent:
        click.echo(
            f"Its message could not be sent yet ({printable(done.problem)}). Nothing is lost: "
            "the sweeper sends it when the broker is back.",
            err=True,
        )


def _check_alone(ctx: click.Context, task_ids: tuple[str, ...]) -> None:
    """Refuse what --args and --kwargs would not obey: they publish one task, at once."""
    if len(task_ids) != 1:
        raise click.UsageError("--args and --kwargs go with one ID.")
    for name in ("dry_run", "rate", "limit", "before", "max_waiting"):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name.replace('_', '-')} goes with no --args or --kwargs.")


def _replay_edited(
    desk: Desk,
    task_id: str,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    to_queue: str,
    as_json: bool,
) -> None:
    by, about = somebody(), {"ids": [task_id], "to_queue": to_queue}
    with desk.noted("replay edited", by, about) as outcome:
        new_id = publish_edited(
            desk.app, desk.letters, task_id, by=by, args=args, kwargs=kwargs, to_queue=to_queue
        )
        outcome.about["new_id"] = new_id
    if as_json:
        print_json({"task_id": task_id, "replayed": True, "new_task_id": new_id})
    else:
        click.echo(f"Published {new_id} in place of {printable(task_id)}, which is discarded.")


@click.command("discard", cls=CeleryCommand)
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@_all_option
@group_option
@filter_options
@_dry_run_option
@click.option("--rate", type=_rate_type, help="So many a second.  Default: as it goes.")
@_limit_option
@_before_option
@_yes_option
@as_json_option
@click.pass_context
def discard(
    ctx: click.Context,
    /,
    task_ids: tuple[str, ...],
    all_: bool,
    group: str,
    dry_run: bool,
    rate: float | None,
    limit: int | None,
    before: int | None,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Remove dead letters for good: by ID, a group, those that fit, or all."""
    chosen = _chosen(task_ids, all_, group, before, given)
    with desk_of(ctx) as desk:
        if len(task_ids) == 1 and not dry_run and before is None:
            _discard_one(desk, task_ids[0], yes, as_json)
            return
        meant = _meant(desk, chosen, limit)
        if dry_run:
            _told(meant, "would be discarded", as_json)
            return
        if not yes:
            if meant.is_whole and not meant.done:
                # What comes in this moment was not asked about.
                _told(replace(meant, is_dry_run=False), "discarded", as_json)
                return
            question = f"Discard {_counted(meant)} for good?"
            click.confirm(question, abort=True, err=True)
        progress = _progress("discarded", meant)
        with interruptible(lambda: progress.to_go_on(limit)), progress:
            done = desk.bulk.discard(
                chosen, by=somebody(), rate=rate, limit=limit, progress=progress
            )
        _told(done, "discarded", as_json)


def _discard_one(desk: Desk, task_id: str, yes: bool, as_json: bool) -> None:
    if not yes:
        what = f"{desk.letters.get(task_id).name or 'the message'}[{task_id}]"
        click.confirm(f"Discard {printable(what)} for good?", abort=True, err=True)
    with desk.noted("discard", somebody(), {"ids": [task_id]}):
        desk.letters.discard(task_id, by=somebody())
    if as_json:
        print_json({"task_id": task_id, "discarded": True})
    else:
        click.echo(f"Discarded {printable(task_id)}.")


def _chosen(
    task_ids: tuple[str, ...],
    all_: bool,
    group: str,
    before_ms: int | None,
    given: dict[str, Any],
) -> Chosen:
    """Return what is meant; nobody means everything by saying nothing."""
    try:
        return Chosen.of(task_ids, group, filter_of(given), is_all=all_, before_ms=before_ms)
    except Unclear as exc:
        raise click.UsageError(str(exc)) from exc


def _meant(desk: Desk, chosen: Chosen, limit: int | None) -> Done:
    """Count for as long as a person waits; whole unless there are more than were counted."""
    found = desk.bulk.count(chosen, limit=limit, seconds=_COUNT_SECONDS)
    return replace(found, is_whole=True) if found.done == limit else found


def _counted(done: Done) -> str:
    at_least = "at least " if done.is_dry_run and not done.is_whole else ""
    return f"{at_least}{counted(done.done, 'dead letter')}"


def _progress(verb: str, meant: Done) -> Progress:
    return Progress(verb, meant.done if meant.is_whole else None)


def _told(done: Done, verb: str, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        others = [
            f"{count} {what}"
            for count, what in (
                (done.gone, "gone already"),
                (done.failed, "could not be"),
                (done.unsent, "not sent yet"),
            )
            if count
        ]
        click.echo(", ".join([f"{_counted(done)} {verb}", *others]))
        if done.problem:
            click.echo(printable(done.problem), err=True)
        if not done.is_whole and not done.is_dry_run:
            click.echo(f"More may be left. To go on: --before {plain(done.before)}", err=True)
    if done.failed or done.unsent:
        sys.exit(1)
