"""What each command needs of its call: the app, and errors told as an operator reads them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click
from celery import Celery

from celery_reliable.exceptions import ConfigurationError, LedgerUnavailable, ReliableError
from celery_reliable.log import logger
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.operation import BadParameter
from celery_reliable.operations.queues import broker_asked
from celery_reliable.operations.words import printable

__all__ = ["app_of", "desk_of", "errors_told"]

#: A person waits at the terminal: shorter than what tasks allow a Redis that is being restarted.
_PATIENCE_SECONDS = 3.0


def app_of(ctx: click.Context) -> Celery:
    """Return the app with its modules imported: in a Django project nothing else sets Django up."""
    app = ctx.obj.app
    app.loader.import_default_modules()
    app.finalize()
    if not logger.hasHandlers():
        # The command itself answers what an operator does.  Warnings would go beside it to stderr.
        handler = logging.StreamHandler()
        handler.setLevel(logging.ERROR)
        logger.addHandler(handler)
    return app


class _LedgerAway(click.ClickException):
    """The ledger cannot be reached."""

    exit_code = 3


@contextmanager
def errors_told(ctx: click.Context) -> Iterator[None]:
    """Turn what an operator can do something about into one paragraph on stderr, exit code 1; 3
    when the ledger cannot be reached.
    """
    try:
        yield
    except LedgerUnavailable as exc:
        raise _LedgerAway(printable(str(exc))) from exc
    except BadParameter as exc:
        raise click.UsageError(printable(str(exc))) from exc
    except ReliableError as exc:
        # Each problem of a configuration is a line.
        keeps = "\n" if isinstance(exc, ConfigurationError) else ""
        raise click.ClickException(printable(str(exc), keeps=keeps)) from exc


@contextmanager
def desk_of(ctx: click.Context) -> Iterator[Desk]:
    """Open the desk of the command's app; errors are told as by `errors_told`."""
    # Whoever has a shell of the project may read its messages.
    with (
        errors_told(ctx),
        Desk(app_of(ctx), patience_seconds=_PATIENCE_SECONDS, sees_arguments=True) as desk,
        broker_asked(desk.app),
    ):
        yield desk
