"""The shop's site as a process: a new database, its users, and Django's own server.

`python -m tests.browser.shop.serve PORT '{"user": ["permission", ...], ...}'`; a user whose
permissions are `null` is a superuser.  A user's password is the name.
"""

from __future__ import annotations

import json
import os
import sys

import django
from django.core.management import call_command

from tests.browser.shop.factory import create_app

#: What the shop's worker is started with (`celery -A`), too.
app = create_app(os.environ["BROKER_URL"])
app.set_current()


def main(port: str, users: str) -> None:
    """Serve until the process is ended."""
    django.setup()
    call_command("migrate", verbosity=0)
    for name, permissions in json.loads(users).items():
        _add(name, permissions)
    call_command(
        "runserver", f"127.0.0.1:{port}", use_reloader=False, insecure_serving=True, verbosity=1
    )


def _add(name: str, permissions: list[str] | None) -> None:
    from django.contrib.auth.models import Permission, User

    if permissions is None:
        User.objects.create_superuser(name, password=name)
        return
    user = User.objects.create_user(name, password=name, is_staff=True)
    found = Permission.objects.filter(
        content_type__app_label="celery_reliable", codename__in=permissions
    )
    missing = set(permissions) - {one.codename for one in found}
    if missing:
        raise SystemExit(f"there is no permission {sorted(missing)}")
    user.user_permissions.set(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
