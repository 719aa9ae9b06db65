"""The key of an object: one for each object, whichever way its id came."""

from __future__ import annotations

import enum
import inspect
import string
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_reliable.exceptions import ConfigurationError, ObjectIdError
from celery_reliable.options.object_id import check_object_id_spec, object_key

A_UUID = UUID("12345678-1234-5678-1234-567812345678")

# Text that cannot be taken for a number or a UUID, so that equal means one object.
leaves = st.one_of(
    st.integers(),
    st.binary(),
    st.text(alphabet=string.ascii_letters + " ,()", min_size=1, max_size=8),
)
object_ids = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4).map(tuple))


class Colour(enum.IntEnum):
    """An id of a number, whose own text is another one."""

    RED = 1


def key(object_id: object) -> str:
    return object_key("proj.charge", object_id)


@given(object_ids, object_ids)
def test_two_ids_share_a_key_only_when_they_are_equal(one: object, other: object) -> None:
    assert (key(one) == key(other)) == (one == other)
    assert object_key("proj.refund", one) != key(one)


def test_the_same_object_has_one_key_however_it_travelled() -> None:
    assert key(7) == key("7")
    assert key(A_UUID) == key(str(A_UUID))
    assert key(Colour.RED) == key(1)
    # Text that looks alike is not the same.
    assert key("7") != key("07")
    assert key("\ud800") != key("?")
    assert key(b"7") != key("7")


def test_a_key_is_the_same_for_ever() -> None:
    # Workers of two versions must agree on it; a change here needs a note in the changelog.
    assert key(7) == "be57b2b86542b1103e1ab353ef9f8419"


@pytest.mark.parametrize(
    ("object_id", "said"),
    [
        (None, "None: there is no object"),
        (True, "a bool"),
        ({"secret": 1}, "a dict"),
        ([1, [2.0]], "a float"),
    ],
)
def test_what_cannot_name_an_object_is_refused(object_id: object, said: str) -> None:
    with pytest.raises(ObjectIdError) as caught:
        key(object_id)

    assert caught.value.task_name == "proj.charge"
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "an int, a str, a UUID, bytes, or a tuple" in str(caught.value)


def charge(account_id: int, amount: int, /, currency: str = "EUR", *, note: str = "") -> None: ...


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("acount_id", "Did you mean 'account_id'?"),
        ("zzz", "Its arguments are account_id, amount, currency, note."),
        (lambda account_id, amount, currency: None, "let it take what the task takes"),
    ],
)
def test_a_spec_that_does_not_fit_the_task_is_refused(spec: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_object_id_spec(spec, inspect.signature(charge), "proj.charge")

    assert said in str(caught.value)
    assert "'proj.charge'" in str(caught.value)
