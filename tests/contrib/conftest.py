"""A Django project in this very process, with the ledger on a real Redis.

Settings are configured here and not by DJANGO_SETTINGS_MODULE, which Celery would take as a sign
that every app of this process belongs to a Django project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import django
import pytest
import redis
from celery import Celery, current_app
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.test.utils import override_settings, setup_test_environment, teardown_test_environment

from celery_reliable import ReliableTask
from celery_reliable.app import Framework, Reliable, reliable_of
from celery_reliable.message.envelope import Envelope, Stamp
from celery_reliable.model import Reason
from celery_reliable.operations import Desk
from celery_reliable.operations.dead_letters import DeadLetters
from tests.support import admin_settings

settings.configure(
    **{
        **{name: value for name, value in vars(admin_settings).items() if name.isupper()},
        "INSTALLED_APPS": [*admin_settings.INSTALLED_APPS, "tests.contrib.shelf"],
        "ALLOWED_HOSTS": ["testserver"],
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        "ROOT_URLCONF": "tests.contrib.urls",
    }
)


# Here, so that test modules may import models; other folders find the package as it was before.
_before = Reliable.framework
django.setup()
Reliable.framework = _before


@pytest.fixture(scope="session")
def _django() -> Iterator[None]:
    setup_test_environment()
    call_command("migrate", run_syncdb=True, verbosity=0)
    yield
    teardown_test_environment()


@pytest.fixture(autouse=True)
def django_project(_django: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Django is set up, and the tests of other folders find the package as it was before."""
    monkeypatch.setattr(Reliable, "framework", Framework())
    apps.get_app_config("celery_reliable").ready()


@pytest.fixture
def redis_address(shared_redis: redis.Redis) -> str:
    """Host and port of the server that all tests share."""
    return f"127.0.0.1:{shared_redis.connection_pool.connection_kwargs['port']}"


@pytest.fixture
def namespace() -> str:
    """A namespace of this test's own."""
    return f"n{uuid4().hex[:8]}"


@pytest.fixture
def celery_project(redis_address: str, namespace: str) -> Iterator[Celery]:
    """The project's Celery app: the current one of this thread while the test runs."""
    before = current_app._get_current_object()
    app = Celery("shop", broker=f"redis://{redis_address}/0")
    with override_settings(CELERY_RELIABLE={"NAMESPACE": namespace}):
        yield app
    app.close()
    before.set_current()


@pytest.fixture
def put(celery_project: Celery) -> Callable[..., None]:
    """Bury a task of this id."""

    def put(
        task_id: str,
        exception: str = "ValueError: <b>no</b>",
        name: str = "shop.bill",
        queue: str = "celery",
        traceback: str = "Traceback: <i>here</i>",
        reason: Reason = Reason.FAILED,
        body: bytes = b'[["secret-1"], {"pin": "secret-2"}, {}]',
        kind: tuple[str, str] = ("application/json", "utf-8"),
    ) -> None:
        envelope = Envelope(
            body,
            *kind,
            {
                "id": task_id,
                "task": name,
                "argsrepr": "('secret-1',)",
                "retries": 2,
                "reliable": Stamp("1", "0-abc").of_task(task_id),
            },
            {},
            "",
            queue,
        )
        reliable_of(celery_project).ledger.bury_message(
            task_id,
            reason,
            exception=exception,
            traceback=traceback,
            message=envelope.to_text(),
            name=name,
        )

    return put


@pytest.fixture
def bill(celery_project: Celery) -> Any:
    """A reliable task that nobody runs."""

    @celery_project.task(name="shop.bill", base=ReliableTask, shared=False)
    def bill(*args: object, **kwargs: object) -> None: ...

    return bill


@pytest.fixture
def letters(celery_project: Celery) -> DeadLetters:
    return DeadLetters(celery_project)


@pytest.fixture
def desk(celery_project: Celery) -> Iterator[Desk]:
    """The desk, as an operator opens it elsewhere."""
    with Desk(celery_project) as found:
        yield found


@pytest.fixture
def log_in(django_project: None) -> Any:
    """Return a client that is logged in with these permissions of the dead letters."""
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    users: list[Any] = []

    def log_in(*permissions: str, is_superuser: bool = False, csrf: bool = False) -> Client:
        user = User.objects.create(
            username=f"user-{len(users)}", is_staff=True, is_superuser=is_superuser
        )
        users.append(user)
        names = [
            name if name in ("operate", "see_arguments") else f"{name}_deadletter"
            for name in permissions
        ]
        found = Permission.objects.filter(codename__in=names)
        assert len(found) == len(permissions)
        user.user_permissions.set(found)
        client = Client(enforce_csrf_checks=csrf)
        client.force_login(user)
        return client

    yield log_in
    for user in users:
        user.delete()
