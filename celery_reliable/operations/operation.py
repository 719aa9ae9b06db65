"""How a query or an act of an operator is declared: once, for every door; and what every part of
the desk is made of.

An operation is a typed function, or a method of a part of the desk.  Its parameters, with their
bounds and help, and its result are read from its signature: the command line makes an option of
each parameter, the HTTP API a schema.  `catalog` lists all; this module knows none of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, EnumMeta
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger, line_of
from celery_reliable.model import Record
from celery_reliable.operations.messages import arguments_of, envelope_of, object_of
from celery_reliable.options import id_of, key_of
from celery_reliable.recovery import BrokerView

__all__ = [
    "BadParameter",
    "Command",
    "Cursor",
    "DryRun",
    "Id",
    "Items",
    "Limit",
    "Operation",
    "Param",
    "Parameter",
    "Part",
    "Progress",
    "Right",
    "duration",
]

T = TypeVar("T")

#: Called by a long act after each thing with how many it has dealt with, and with the parameters
#: that, given with the same ones again, continue the act from there.
Progress = Callable[[int, Mapping[str, Any]], None]

#: What the door gives, and nobody is asked for.
_GIVEN = ("self", "desk", "app", "by", "progress")
#: Where a docstring turns to those who call the function.
_FOR_CALLERS = re.compile(r"\n\n(?:Args|Raises)\b")

#: Characters of an object's id, as it is shown.
_LONGEST_ID = 100


class Right(str, Enum):
    """What somebody may be allowed to do."""

    #: To see the desk: dead letters, tasks, objects, workers, the audit; no arguments.
    VIEW = "view"
    #: To return dead letters to their queues.
    REPLAY = "replay"
    #: To remove dead letters for good.
    DISCARD = "discard"
    #: To end tasks that live, and to run a pass of the sweeper.
    OPERATE = "operate"
    #: To see arguments and whole messages.
    SEE_ARGUMENTS = "see_arguments"


class BadParameter(ReliableError, ValueError):
    """What was given cannot be meant.

    Attributes:
        parameter: by its name; empty where several do not go together.
    """

    def __init__(self, parameter: str, why: str) -> None:
        self.parameter = parameter
        super().__init__(f"{parameter}: {why}" if parameter else why)


@dataclass(frozen=True)
class Param:
    """What the type of a parameter does not say.

    Attributes:
        help: one sentence for people.
        ge, le: bounds of a number.
        min_length, max_length: bounds of a text.
        choices: a text is one of these; empty: any.
        most: items that one request may list; the command line takes any number.
        is_argument: the command line takes it without an option's name before it.
        is_duration: seconds, which the command line takes as 90, 15m, 2h, too, and by a name
            without ``_seconds``.
        option: the option's name, where it is not the parameter's.
        metavar: what the command line's help calls its value.
        needs: the right that whoever gives it needs besides those of the operation.
    """

    help: str = ""
    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int = 1000
    choices: tuple[str, ...] = ()
    most: int | None = None
    is_argument: bool = False
    is_duration: bool = False
    option: str = ""
    metavar: str = ""
    needs: Right | None = None


def duration(text: str, option: str = "") -> Param:
    """Return the declaration of a length of time; see `Param`."""
    return Param(text, ge=0, le=1e10, is_duration=True, option=option)


Id = Annotated[str, Param("Its id.", min_length=1, is_argument=True, metavar="ID")]
Cursor = Annotated[
    str, Param("Continue after the page that returned this cursor.", max_length=10_000)
]
Limit = Annotated[int, Param("The largest number to list or to act on.", ge=1, le=500)]
DryRun = Annotated[bool, Param("Count what would be done, and change nothing.")]


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation, or a field of one that is a dataclass.

    Attributes:
        name: of the function's parameter, or of the field.
        type: without None: who gives nothing leaves it out.
        default: `inspect.Parameter.empty` where it has to be given.
        param: the rest of its declaration.
        of: the parameter whose field it is; empty: it is no field.
    """

    name: str
    type: Any
    default: Any
    param: Param
    of: str = ""

    @property
    def is_required(self) -> bool:
        """Whether it has to be given."""
        return self.default is inspect.Parameter.empty

    @property
    def choices(self) -> Sequence[str]:
        """The texts of which it is one; empty: it may be any."""
        is_enum = isinstance(self.type, EnumMeta)
        return [one.value for one in self.type] if is_enum else self.param.choices


@dataclass(frozen=True)
class Command:
    """A command that calls an operation.

    Attributes:
        name: below ``celery reliable``; of a group's with a space, as "dead-letters list".
        help: what it does; empty: as the operation says.
        preset: parameters that the command sets itself and does not offer.
    """

    name: str
    help: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    """A query, or an act.

    Attributes:
        name: in the HTTP API, and in the admin.
        call: a method of the desk or of a part of it, or a function whose first parameter is
            ``app``.  An act has ``by``, but for those functions, and a bulk act
            ``progress``.  All other parameters are what somebody may give; an underscore at the end
            is no part of their names.
        needs: the rights that it needs, all of them.
        path: its address in the HTTP API, below ``v1/``; empty: it has none.
        commands: several operations may share one: the parameters given say which is meant.
        of: the desk's attribute that has the method; empty: it is the desk's own.
        preset: parameters that are set, and not offered.
        parts: the parts of a filter that it offers; empty: all.
        help: what it does, for people; empty: what the docstring of *call* says before its ``Args``
            and ``Raises``.
        is_act: it changes something.  Who does it is noted in the audit.
        asks: returns the question that a person is asked before.  It is called with what the
            operation is run with, with what was given, and with what the same call with ``dry_run``
            has counted; None: nobody is asked.
        asks_with: the parameter with which it asks; empty: it asks always.
        noun: of what it acts on, for people.
        verb: what has become of those: "revoked".
        problems: statuses of HTTP that it may end with beside those of every operation.
    """

    name: str
    call: Callable[..., Any]
    needs: tuple[Right, ...]
    path: str = ""
    commands: tuple[Command, ...] = ()
    of: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    help: str = ""
    is_act: bool = False
    asks: Callable[[Any, Mapping[str, Any], Any], str] | None = None
    asks_with: str = ""
    noun: str = ""
    verb: str = ""
    problems: tuple[int, ...] = ()

    @property
    def about(self) -> str:
        """What it does: a sentence, and after an empty line more of them."""
        return self.help or _FOR_CALLERS.split(inspect.cleandoc(self.call.__doc__ or ""))[0]

    @property
    def result(self) -> Any:
        """The type of what it returns; of a list it is `Items`."""
        kind = get_type_hints(self.call)["return"]
        return Items[get_args(kind)[0]] if get_origin(kind) is list else kind  # type: ignore[misc]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What may be given, in the order of declaration: of a filter each field."""
        hints, found = get_type_hints(self.call, include_extras=True), list[Parameter]()
        for name, one in inspect.signature(self.call).parameters.items():
            if is_dataclass(kind := hints.get(name)):
                of_fields = get_type_hints(kind, include_extras=True)
                found += [
                    _parameter(each.name, of_fields[each.name], each.default, name.rstrip("_"))
                    for each in fields(kind)
                    if not self.parts or each.name in self.parts
                ]
            elif name not in _GIVEN and name not in self.preset:
                found.append(_parameter(name.rstrip("_"), hints[name], one.default))
        return tuple(found)

    def takes(self, name: str) -> bool:
        """Whether the function has this parameter.  If it has ``progress``, it is a bulk act: it
        acts on one thing after the other, reports each, counts with ``dry_run``, and may be
        interrupted and repeated.
        """
        return name in inspect.signature(self.call).parameters

    def run(
        self,
        opened: Any,
        given: Mapping[str, Any],
        *,
        by: str = "",
        progress: Progress | None = None,
    ) -> Any:
        """Run it, and return its result.  Raises what its parts raise.

        Args:
            opened: the desk; or the app, of a function that the desk does not have.
            given: its `parameters` by their names; what it does not take is left out.
            by: who does it.
            progress: is told of each thing; see `takes`.
        """
        values = {"by": by, "progress": progress, **self.preset, **given}
        hints = get_type_hints(self.call)
        taken = {}
        for name in inspect.signature(self.call).parameters:
            if is_dataclass(kind := hints.get(name)):
                within = {one.name: values[one.name] for one in fields(kind) if one.name in values}
                taken[name] = hints[name](**within)
            elif name.rstrip("_") in values:
                taken[name] = values[name.rstrip("_")]
        found = self.call(getattr(opened, self.of) if self.of else opened, **taken)
        return Items(tuple(found)) if isinstance(found, list) else found


@dataclass(frozen=True)
class Items(Generic[T]):
    """All of them."""

    items: tuple[T, ...]


def _parameter(name: str, hint: Any, default: Any, of: str = "") -> Parameter:
    param = Param()
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        param = next((one for one in more if isinstance(one, Param)), param)
    given = [one for one in get_args(hint) if one is not type(None)]
    if len(given) < len(get_args(hint)):
        # What is left out is None, and nothing else is.
        (hint,) = given
        if get_origin(hint) is Annotated:
            return _parameter(name, hint, default, of)
    return Parameter(name, hint, default, param, of)


class Part:
    """A part of the desk.  Raises what the ledger raises.

    Args:
        app: the app of the tasks.
        ledger: where they are; None: by the connections of the app's tasks.
        broker: None: a connection of its own, which is opened when the broker is asked.
        sees_arguments: who asks may see arguments, so objects are called by their ids.
    """

    def __init__(
        self,
        app: Celery,
        ledger: Ledger | None = None,
        broker: BrokerView | None = None,
        *,
        sees_arguments: bool = False,
    ) -> None:
        self.app, self.ledger = app, ledger or reliable_of(app).ledger
        self.broker = broker or BrokerView(app)
        self.sees_arguments = sees_arguments

    def object_name(self, record: Record, key: str) -> str:
        """Return what people call an object: its task and its id (``accounts.sync 'acme'``).

        For those who may not see arguments the object's key stands in place of the id, and also
        where the message does not tell it.  Empty for no object.

        Args:
            record: of a task that has the object, or waits for it.
            key: of the object, or of a place of it; or whatever else the task waits for.
        """
        if not key or " " in key:
            # A task that waits for its moment or for an order notes that in two words.
            return ""
        key = line_of(key)
        task = self.app.tasks.get(record.name)
        envelope = envelope_of(record)
        try:
            if task is not None and type(task).object_id is None and key_of(task, (), {}) == key:
                # The task itself is limited, and has no ids.
                return record.name
            if (
                self.sees_arguments
                and envelope is not None
                and object_of(self.app, envelope) == key
            ):
                args, kwargs, _ = arguments_of(envelope)
                shown = repr(id_of(task, args, kwargs))
                cut = shown if len(shown) <= _LONGEST_ID else f"{shown[:_LONGEST_ID]}…"
                return f"{record.name} {cut}"
        except Exception:
            # As in `object_of`; and a plain task has no such option.
            pass
        return f"{record.name} {key}".lstrip()
