"""kombu's connections and producers: which transport they keep, and whether a batch is open."""

from __future__ import annotations

from typing import Any

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = ["OpenSwitch", "is_batching"]


@relies_on(
    Name(
        "kombu.connection:Connection.switch",
        takes=("conn_str",),
        used_by="kombu.connection:Connection.maybe_switch_next",
    ),
    Kept("kombu.connection:Connection._initial_params"),
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


@relies_on(Kept("kombu.messaging:Producer._batch_local"), part=Part.PRODUCER)
def is_batching(producer: Any) -> bool:
    """Whether a batch of a producer is open in this thread.

    Reads ``Producer._batch_local``: kombu tells it to nobody.  Checked on kombu 5.7.0.  Without it
    a task that is called within a batch is sent without a record, or is recorded and not sent.
    """
    return getattr(getattr(producer, "_batch_local", None), "current", None) is not None
