"""What every part of the desk is made of."""

from __future__ import annotations

from celery import Celery

from celery_reliable.ledger import Ledger, line_of
from celery_reliable.model import Record
from celery_reliable.operations.messages import arguments_of, envelope_of, object_of
from celery_reliable.options import id_of, key_of
from celery_reliable.recovery import BrokerView

__all__ = ["Part"]

#: Characters of an object's id, as it is shown.
_LONGEST_ID = 100


class Part:
    """A part of the desk.  Raises what the ledger raises.

    Args:
        app: the app of the tasks.
        ledger: where they are.
        broker: None: a connection of its own, which is opened when the broker is asked.
        sees_arguments: who asks may see arguments, so objects are called by their ids.
    """

    def __init__(
        self,
        app: Celery,
        ledger: Ledger,
        broker: BrokerView | None = None,
        *,
        sees_arguments: bool = False,
    ) -> None:
        self.app, self.ledger = app, ledger
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
