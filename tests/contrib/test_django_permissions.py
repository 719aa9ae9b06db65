"""Which of Django's permissions allows what."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from celery_reliable.contrib.django.permissions import may
from celery_reliable.operations import Right

#: By the codename that is granted: what grants of the first release allowed, and the new ones.
GRANTS = {
    "view_deadletter": {"view"},
    "change_deadletter": {"view", "replay"},
    "delete_deadletter": {"discard"},
    "operate": {"operate"},
    "see_arguments": {"see_arguments"},
}


def test_each_permission_allows_what_it_says() -> None:
    from django.contrib.auth.models import Permission, User

    found = Permission.objects.filter(content_type__app_label="celery_reliable")
    assert {one.codename for one in found} == set(GRANTS)
    for permission in found:
        user = User.objects.create(username="granted")
        user.user_permissions.add(permission)
        allowed = {right.value for right in Right if may(user, right)}
        assert allowed == GRANTS[permission.codename]
        user.delete()


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
