"""Which of Django's permissions allows what."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from celery_reliable.contrib.django.permissions import NEEDED, may
from celery_reliable.operations import Right

#: By the codename that is granted: what grants of the first release allowed, and the new ones.
GRANTS = [
    ("view_deadletter", {"view"}),
    ("change_deadletter", {"view", "replay"}),
    ("delete_deadletter", {"discard"}),
    ("operate", {"operate"}),
    ("see_arguments", {"see_arguments"}),
]


@pytest.mark.parametrize(("codename", "allowed"), GRANTS)
def test_a_grant_allows_what_it_says(codename: str, allowed: set[str]) -> None:
    from django.contrib.auth.models import Permission, User

    user = User.objects.create(username=f"grant-{codename}")
    user.user_permissions.add(
        Permission.objects.get(codename=codename, content_type__app_label="celery_reliable")
    )

    assert {right.value for right in Right if may(user, right)} == allowed
    user.delete()


def test_each_permission_that_is_needed_can_be_granted() -> None:
    from django.contrib.auth.models import Permission

    found = Permission.objects.filter(content_type__app_label="celery_reliable")

    assert {f"celery_reliable.{one.codename}" for one in found} == {
        name for names in NEEDED.values() for name in names
    }


def test_a_superuser_may_everything_and_nobody_nothing() -> None:
    from django.contrib.auth.models import AnonymousUser, User

    root = User(username="root", is_superuser=True)

    assert all(may(root, right) for right in Right)
    assert not any(may(AnonymousUser(), right) for right in Right)
    root.is_active = False
    assert not any(may(root, right) for right in Right)
    with pytest.raises(ValueError, match="everything"):
        may(root, "everything")


def test_the_model_without_a_table_is_in_nobody_s_way() -> None:
    """Such as who dumps a whole project."""
    from celery_reliable.contrib.django.models import DeadLetter

    out = io.StringIO()
    call_command("dumpdata", stdout=out)

    assert "celery_reliable.deadletter" not in {one["model"] for one in json.loads(out.getvalue())}
    assert list(DeadLetter.objects.all()) == []
