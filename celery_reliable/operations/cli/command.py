"""How a command is made of the operations that it calls: its options, the question that is asked
first, the progress, and what it exits with.  What it prints for people is in `layouts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import EnumMeta
from functools import partial
from typing import Any, get_origin

import click
from celery.bin.base import CeleryCommand
from click.core import ParameterSource

from celery_reliable.clock import parse_age
from celery_reliable.operations.cli.terminal import desk_of, interruptible
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.history import somebody
from celery_reliable.operations.messages import printable
from celery_reliable.operations.operation import Command, Operation, Parameter, Progress

__all__ = ["ANYWHERE", "Anywhere", "Call", "command_of"]

#: For so long a person waits for the count of what is meant.
_COUNT_SECONDS = 0.7
#: Moments in ISO 8601, as our JSON has them.  Who leaves the zone out may mean UTC, or their clock.
_TIMES = ("%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%dT%H:%M:%S%z")
#: In click's ``meta``, which a command shares with its groups: which of these options were given.
_GIVEN_ANYWHERE = f"{__name__}.anywhere"
#: The options that every command has.  They are the group's, and may stand behind a command too.
ANYWHERE = (
    click.Option(["--json"], is_flag=True, help="Print JSON, for programs."),
    click.Option(["--yes"], is_flag=True, help="Do not ask for confirmation."),
)


class Anywhere(click.Group):
    """A group with the options of `ANYWHERE`, wherever they stand before a ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse these options, and leave the rest to the command."""
        end = args.index("--") if "--" in args else len(args)
        names = {name for one in ANYWHERE for name in one.opts}
        ctx.meta[_GIVEN_ANYWHERE] = names & {*args[:end]}
        rest = [one for one in args[:end] if one not in names]
        return super().parse_args(ctx, [*rest, *args[end:]])


class _Read(click.ParamType):  # type: ignore[type-arg]
    """What a function reads from a text; its ValueError says what is wrong with that."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return what was read; a default is that already."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


@dataclass
class Call:
    """A command that somebody has given.

    Attributes:
        ctx: click's context of it.
        operation: the operation that its parameters mean.
        given: the operation's parameters by their names.
        more: the values of the command's other options, by their names.
    """

    ctx: click.Context
    operation: Operation
    given: dict[str, Any]
    more: dict[str, Any]

    @property
    def is_json(self) -> bool:
        """Whether JSON is printed."""
        return "--json" in self.ctx.meta[_GIVEN_ANYWHERE]

    def run(self) -> Any:
        """Run the operation, after a question where it asks one, and return its result."""
        with desk_of(self.ctx) as desk:
            if self.operation.takes("progress"):
                return self._act_on_many(desk)
            self._ask(desk, None)
            return self._do(desk, {})

    def _do(self, desk: Desk, more: Mapping[str, Any], progress: Progress | None = None) -> Any:
        return self.operation.run(
            desk,
            {**self.given, **more},
            by=somebody(),
            progress=progress,
        )

    @property
    def _asks(self) -> Callable[[Any, Mapping[str, Any], Any], str] | None:
        """Returns the question; None: nobody is asked."""
        operation = self.operation
        is_meant = not operation.asks_with or self.given.get(operation.asks_with)
        is_silent = "--yes" in self.ctx.meta[_GIVEN_ANYWHERE]
        return operation.asks if is_meant and not is_silent else None

    def _ask(self, desk: Desk, meant: Any) -> None:
        if asks := self._asks:
            click.confirm(printable(asks(desk, self.given, meant)), abort=True, err=True)

    def _act_on_many(self, desk: Desk) -> Any:
        """Count what is meant, ask, and do it, with progress; it may be interrupted."""
        operation, n_ids = self.operation, len(set(self.given.get("ids", ()))) or None
        is_dry_run = self.given.get("dry_run", False)
        meant = None
        if is_dry_run or self._asks or not n_ids:
            meant = self._counted(desk, n_ids)
            if is_dry_run:
                return meant
            if self._asks and not meant.done and getattr(meant, "is_whole", True):
                # What comes in this moment was not asked about.
                return replace(meant, is_dry_run=False)
            self._ask(desk, meant)
        total = n_ids or (meant.done if meant and meant.is_whole else None)
        with interruptible(operation.verb, total) as progress:
            return self._do(desk, {}, progress)

    def _counted(self, desk: Desk, n_ids: int | None) -> Any:
        """Return what a dry run counts while a person waits."""
        with interruptible("looked at", n_ids) as progress:
            found = self._do(desk, {"seconds": _COUNT_SECONDS, "dry_run": True}, progress)
        # All that is meant by a limit was found.
        return replace(found, is_whole=True) if found.done == self.given.get("limit") else found


def command_of(
    name: str,
    known: Sequence[tuple[Operation, Command]],
    *,
    carry_out: Callable[[Call], None],
    options: Sequence[click.Option] = (),
) -> click.Command:
    """Return the command with this name.

    Args:
        name: as the list of operations has it.
        known: the operations that it calls, with its part in each: of these the first that takes
            all that is given.
        carry_out: runs the call and prints its result.
        options: that are no parameters of an operation.
    """
    parameters = _offered(known)

    def callback(ctx: click.Context, /, **values: Any) -> None:
        more = {str(one.name): values.pop(str(one.name)) for one in options}
        given = {
            one: value
            for one, value in values.items()
            if ctx.get_parameter_source(one) is not ParameterSource.DEFAULT
        }
        for operation, command in known:
            if (taken := _taken(operation, command, given)) is not None:
                call = Call(ctx, operation, {**taken, **command.preset}, more)
                break
        else:
            said = (
                str(one.metavar) if isinstance(one, click.Argument) else one.opts[0]
                for one in parameters
                if one.name in given
            )
            raise click.UsageError(f"These do not go together: {', '.join(said)}.")
        carry_out(call)

    made: click.Command = CeleryCommand(
        name.rpartition(" ")[2],
        callback=click.pass_context(callback),
        params=[*parameters, *options],
        help=next((one.help for _, one in known if one.help), known[0][0].about),
        options_metavar="[OPTIONS] [--json]" + " [--yes]" * any(one.asks for one, _ in known),
    )
    return made


def _offered(known: Sequence[tuple[Operation, Command]]) -> list[click.Parameter]:
    """Return an argument or an option for each parameter of any of these operations."""
    offered: dict[str, click.Parameter] = {}
    for operation, command in known:
        for one in operation.parameters:
            if one.name not in command.preset:
                is_required = one.is_required and len(known) == 1
                offered.setdefault(one.name, _option(one, is_required))
    return list(offered.values())


def _option(one: Parameter, is_required: bool) -> click.Parameter:
    param, kind = one.param, _type(one)
    is_several = get_origin(one.type) is tuple
    if param.is_argument:
        return click.Argument(
            [one.name],
            nargs=-1 if is_several else 1,
            required=is_required,
            metavar=param.metavar if is_required or "[" in param.metavar else f"[{param.metavar}]",
            type=kind,
        )
    name = one.name.removesuffix("_seconds") if param.is_duration else one.name
    has_default = one.default not in (None, False, ()) and not one.is_required
    return click.Option(
        [*(param.option or f"--{name.replace('_', '-')}").split(), one.name],
        type=kind,
        is_flag=one.type is bool,
        multiple=is_several,
        default=getattr(one.default, "value", one.default) if has_default else None,
        show_default=has_default and one.default != "",
        required=is_required,
        help=param.help.replace(".", ": 90, 15m, 2h.", 1) if param.is_duration else param.help,
    )


def _type(one: Parameter) -> Any:
    param = one.param
    if one.choices:
        return click.Choice(one.choices)
    if param.is_duration:
        return _Read("duration", partial(parse_age, least=param.ge or 0, most=param.le))
    if one.type is int:
        # As many as somebody wants: a page of the API has a limit, a list at a terminal has many.
        return click.IntRange(min=None if param.ge is None else int(param.ge))
    if one.type is float:
        return click.FloatRange(param.ge, param.le)
    if one.type is datetime:
        return click.DateTime(_TIMES)
    return bool if one.type is bool else str


def _taken(
    operation: Operation, command: Command, given: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return what was given as this operation takes it; None if it takes not all of it, or needs
    more.
    """
    left, taken = dict(given), {}
    for one in operation.parameters:
        if one.name in command.preset:
            continue
        if one.name in left:
            value = left.pop(one.name)
            taken[one.name] = one.type(value) if isinstance(one.type, EnumMeta) else value
        elif one.is_required:
            return None
    return None if left else taken
