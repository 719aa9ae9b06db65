"""Events of messages: publishing, deliveries, and what a broker answers."""

from __future__ import annotations

from celery_reliable.events.declaring import DEBUG, ERROR, INFO, WARNING, declared

# -- publishing


@declared(INFO)
def publication_refused(*, name: str, task_id: str, reply: str) -> None:
    """A publication changed nothing: its id is a living task's, or its attempt is not current."""


@declared(WARNING)
def send_left_to_sweeper(*, name: str = "", task_id: str, error: Exception) -> None:
    """A recorded task could not be sent.  A pass sends it."""


@declared(WARNING)
def message_not_kept_as_sent(*, error: Exception) -> None:
    """A delivered message could not be put into its record: it cannot be sent from there."""


@declared(WARNING)
def queues_purged(*, messages: int, records: int) -> None:
    """An operator emptied queues."""


# -- deliveries


@declared(WARNING)
def opening_not_noted(*, task_id: str, error: Exception) -> None:
    """A message that came back is opened while the ledger is away. If it kills its worker,
    nobody knows.
    """


@declared(WARNING)
def opening_still_noted(*, delivery: str, error: Exception) -> None:
    """A worker has opened a message that came back, and could not say that it lives."""


@declared(ERROR)
def unreadable(*, queue: str, size: int, error: Exception) -> None:
    """What was popped from a queue is no message, and there is no worker to bury it."""


@declared(ERROR)
def unprocessable_not_buried(*, name: str = "", task_id: str, error: Exception) -> None:
    """The ledger is away: a message that nobody can run is kept, and buried when it is back."""


@declared(WARNING)
def message_kept_as_it_is_shown(*, error: Exception) -> None:
    """A message that nobody can run cannot be kept as it is. Its ``repr`` is kept."""


@declared(ERROR)
def unprocessable_not_dropped(*, name: str, task_id: str, error: Exception) -> None:
    """Celery failed as it dropped a message that nobody can run.  It is rejected."""


@declared(WARNING)
def message_not_readable(*, task_id: str, error: Exception) -> None:
    """A stored message cannot be decoded: its callbacks and its chord are not told."""


@declared(INFO)
def delivery_given_back(*, name: str, task_id: str) -> None:
    """A delivery waited in its worker for ``ACKNOWLEDGE_SECONDS``, and went back to its queue."""


@declared(INFO, sender="worker", signal=("count",))
def unbegun_given_back(*, worker: str, count: int) -> None:
    """What a worker had fetched and could not begin within ``GIVE_BACK_SECONDS`` went back to the
    front of its queue.
    """


@declared(INFO)
def long_task_acknowledged(*, name: str, task_id: str) -> None:
    """A task has run for ``ACKNOWLEDGE_SECONDS``: from now on only the ledger brings it back."""


@declared(WARNING)
def claim_not_seen(*, task_id: str, error: Exception) -> None:
    """The ledger does not say whether a long task is claimed: its message is not acknowledged."""


@declared(WARNING)
def lost_deliveries_given_back(*, count: int) -> None:
    """What was delivered over a connection that is gone, and not begun, went back to its queue."""


@declared(WARNING)
def deliveries_not_given_back(*, unacked: str, error: Exception) -> None:
    """Deliveries could not be given back to their queues. That is done when the broker is back."""


@declared(DEBUG)
def deliveries_not_compared(*, error: Exception) -> None:
    """What was delivered over former connections could not be compared.  The next one does."""


@declared(WARNING)
def arrivals_forbidden(*, worker: str, error: Exception) -> None:
    """The server does not let this worker wait for messages that are filed as they come (BLMOVE,
    LMOVE).  It pops them instead (BRPOP): what is popped as the worker dies is sent again later,
    if it is of a reliable task, and lost if it is not.
    """


@declared(INFO)
def arrivals_not_looked_for(*, error: Exception) -> None:
    """The ledger did not answer as the worker was about to wait for a message, or looked for what
    had come as it lost its connection.  It pops the next message instead (BRPOP), and looks later.
    """


# -- what a broker answers


@declared(WARNING)
def acknowledgement_kept_for_later(*, tag: str, error: Exception) -> None:
    """An acknowledgement could not be sent. It is sent with the next fetch."""


@declared(WARNING)
def delivery_not_seen(*, tag: str, error: Exception) -> None:
    """The broker does not say whether a delivery is still this worker's: it is not begun."""


@declared(WARNING)
def removal_unknown(*, tag: str, error: Exception) -> None:
    """The broker does not say whether a delivery was removed.  It is begun: nobody else has it."""


@declared(INFO)
def queue_not_seen(*, queue: str, error: Exception) -> None:
    """The broker does not say how many messages a queue has. The queue counts as empty."""


@declared(DEBUG)
def writing_not_tried(*, error: Exception) -> None:
    """The broker's user may not run the command that checks whether the server takes writes."""


@declared(DEBUG)
def broken_channel_closed(*, error: Exception) -> None:
    """A channel was closed whose connection was broken."""


@declared(DEBUG)
def broker_view_lost(*, error: Exception) -> None:
    """The sweeper's connection to the broker is lost, or did not close.  It opens another."""


# -- events of Celery's


@declared(INFO)
def event_not_sent(*, event: str, task_id: str, error: Exception) -> None:
    """An event of Celery's could not be sent.  Nothing is sent later."""


# -- notes in the ledger


@declared(INFO)
def not_noted(*, event: str, error: Exception) -> None:
    """An event could not be noted in the ledger, for a fault of ours.  Nothing is noted later."""
