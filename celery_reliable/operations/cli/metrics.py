"""The command that serves metrics to Prometheus."""

from __future__ import annotations

import threading

import click
from celery.bin.base import CeleryCommand

from celery_reliable.operations.cli.calling import app_of, errors_told
from celery_reliable.operations.metrics import registry_of

__all__ = ["metrics"]


@click.command("metrics", cls=CeleryCommand)
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=9809,
    show_default=True,
    help="The port; 0 takes any free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; it shows the names of tasks and queues.",
)
@click.pass_context
def metrics(ctx: click.Context, port: int, host: str) -> None:
    """Serve the metrics of the fleet to Prometheus, until Ctrl-C."""
    with errors_told(ctx):
        registry = registry_of(app_of(ctx))
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as exc:
        raise click.ClickException(f"Cannot listen on {host}:{port}: {exc.strerror}.") from exc
    click.echo(f"Serving metrics on http://{host}:{server.server_port}/metrics")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.shutdown()
        thread.join()
