"""`docs/guides/stop-button.rst`: its commands, in the order of the page, and the names in it.  The
workers that obey are those of `tests/integration/test_stop_button.py`.
"""

from __future__ import annotations

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.operations.desk import Desk
from celery_reliable.orders import OrderKind
from tests.docs.blocks import Page
from tests.docs.commands import run
from tests.integration.conftest import Project

PAGES = ("guides/stop-button.rst",)
PAGE = Page(*PAGES)


def test_its_commands_stop_and_resume(project: Project) -> None:
    app = project.app

    @app.task(name="proj.mail", base=ReliableTask, shared=False)
    def mail() -> None:
        """Struck."""

    @app.task(name="proj.charge", base=ReliableTask, object_id="contract", shared=False)
    def charge(contract: int) -> None:
        """Of which one object is struck."""

    app.amqp.queues.add("invoices")
    reliable_of(app).ledger.workers.register(
        "celery@old-1/0", lease_ms=600_000, client_id=0, facts={}
    )

    # Those of the sections below come behind.
    given = PAGE.commands("The stop button")[:4]
    for command in given:
        ran = run(command, app)
        assert ran.exit_code == 0, (command, ran.output)
    with Desk(app) as desk:
        views = desk.orders.all()
    assert [(one.kind, one.target) for one in views] == [
        (OrderKind.STRIKE, "proj.mail"),
        (OrderKind.STRIKE, "proj.charge"),
        (OrderKind.PAUSE, "invoices"),
        (OrderKind.DRAIN, "celery@old-*"),
    ]
    assert [one.object_id for one in views] == [None, "4711", None, None]
    until, given_at = views[2].until, views[2].given_at
    assert until is not None
    assert given_at is not None
    assert (until - given_at).total_seconds() == 900

    task_id = project.send("work", 0, queue="invoices").id
    for command in PAGE.commands("Who stopped it, and going on"):
        ran = run(command, app, known={"ID": task_id})
        assert ran.exit_code == 0, (command, ran.output)
        if " show " in command:
            assert "invoices is paused" in " ".join(ran.output.split())
        if command.endswith("orders"):
            assert "mails twice" in " ".join(ran.output.split())
    with Desk(app) as desk:
        left = [one.target for one in desk.orders.all()]
    assert left == ["proj.charge", "celery@old-*"]

    for command in PAGE.commands("One task that runs"):
        ran = run(command, app, known={"ID": project.send("work", 0, countdown=3600).id})
        assert ran.exit_code == 0, (command, ran.output)
    assert PAGE.left() == []
