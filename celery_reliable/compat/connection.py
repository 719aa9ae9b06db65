"""kombu's connections: what they are shown as, and which transport they keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu import Connection

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = ["OpenSwitch", "shown_as"]


@relies_on(
    Name("kombu.connection:Connection.resolve_aliases"), part=Part.REDIS_BROKER, is_promise=False
)
def shown_as(transport: str, scheme: str) -> Callable[[], None]:
    """Show connections that use *transport* with the *scheme* of their URL. Returns a function
    that undoes it.

    Adds that transport to ``Connection.resolve_aliases``, which all connections share: kombu shows
    a connection by its transport's name, and has no other way to change that.  Checked on kombu
    5.7.0.  Without it a worker's banner names a broker that nobody knows.
    """
    aliases = Connection.resolve_aliases
    before = aliases.get(transport)
    aliases[transport] = scheme

    def undo() -> None:
        if before is None:
            aliases.pop(transport, None)
        else:
            aliases[transport] = before

    return undo


@relies_on(
    Name(
        "kombu.connection:Connection.switch",
        takes=("conn_str",),
        used_by="kombu.connection:Connection.maybe_switch_next",
    ),
    Kept("kombu.connection:Connection._initial_params"),
    Kept("kombu.connection:Connection.transport_cls"),
    Used(by="kombu.connection:Connection.get_transport_cls", name="transport_cls"),
    part=Part.REDIS_BROKER,
)
class OpenSwitch:
    """Mixed into a connection. It may keep its transport as it goes on to the next URL of a list.

    Overrides ``Connection.switch`` and reads ``_initial_params``: kombu takes the transport from
    the scheme of that URL, whatever transport it was given.  Checked on kombu 5.7.0.  Without it a
    worker behind several Sentinels keeps what it is delivered as Celery alone does, as soon as it
    has once failed to connect.
    """

    def switch(self, conn_str: str) -> None:
        """Go on to another URL."""
        super().switch(conn_str)  # type: ignore[misc]
        given = self._initial_params["transport"]  # type: ignore[attr-defined]
        if self.keeps_transport(given, conn_str):
            self.transport_cls = given

    def keeps_transport(self, given: Any, url: str) -> bool:
        """Whether the transport *given* at first is that for *url* as well."""
        return False
