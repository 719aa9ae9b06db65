from __future__ import annotations

import enum
import inspect
import string
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_reliable.exceptions import ConfigurationError, ObjectIdError
from celery_reliable.options.object_id import check_object_id_spec, object_key, resolve_object_id

A_UUID = UUID("12345678-1234-5678-1234-567812345678")

# Text that cannot be taken for a number or a UUID, so that equal means one object.
leaves = st.one_of(
    st.integers(),
    st.binary(),
    st.text(alphabet=string.ascii_letters + " ,()", min_size=1, max_size=8),
)
object_ids = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4).map(tuple))


class Colour(enum.IntEnum):
    RED = 1


class Size(str, enum.Enum):
    SMALL = "s"


def charge(account_id, amount, /, currency="EUR", *, note=None): ...


def key(object_id: object) -> str:
    return object_key("proj.charge", object_id)


def resolve(
    spec: str | Callable[..., object], func: Callable[..., object], *args: object, **kwargs: object
) -> object:
    by_name = check_object_id_spec(spec, inspect.signature(func), "proj.charge")
    return resolve_object_id(
        spec, inspect.signature(func), "proj.charge", args, kwargs, by_name=by_name
    )


def check(spec: object, func: Callable[..., object]) -> None:
    check_object_id_spec(spec, inspect.signature(func), "proj.charge")


# The key of an object


@given(object_ids, object_ids)
def test_two_ids_share_a_key_only_when_they_are_equal(one, other):
    assert (key(one) == key(other)) == (one == other)


@given(st.text(), st.text(), st.text(), st.text())
def test_names_and_ids_do_not_run_into_each_other(name, object_id, other_name, other_id):
    same = (name, object_id) == (other_name, other_id)

    assert (object_key(name, object_id) == object_key(other_name, other_id)) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 23), (12, 3)),
        ((1, (2, 3)), ((1, 2), 3)),
        (b"7", "7"),
        ("7", "07"),
        ("\ud800", "?"),
    ],
)
def test_different_objects_have_different_keys(one, other):
    assert key(one) != key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (7, "7"),
        (A_UUID, str(A_UUID)),
        (Colour.RED, 1),
        (Size.SMALL, "s"),
    ],
)
def test_the_same_object_has_one_key_however_it_travelled(one, other):
    assert key(one) == key(other)


def test_a_key_is_short_plain_and_the_same_for_ever():
    # Workers of two versions must agree on it; a change here needs a note in the changelog.
    assert object_key("proj.charge", 7) == "be57b2b86542b1103e1ab353ef9f8419"


@pytest.mark.parametrize(
    ("object_id", "said"),
    [
        (None, "None: there is no object"),
        (True, "a bool"),
        (1.5, "a float"),
        ({"a": 1}, "a dict"),
        ((1, None), "None"),
        ([1, [2.0]], "a float"),
    ],
)
def test_what_cannot_name_an_object_is_refused(object_id, said):
    with pytest.raises(ObjectIdError) as caught:
        key(object_id)

    assert caught.value.task_name == "proj.charge"
    assert said in str(caught.value)
    assert "'proj.charge'" in str(caught.value)
    assert "an int, a str, a UUID, bytes, or a tuple" in str(caught.value)


# From a call to the object id


@pytest.mark.parametrize(
    ("spec", "args", "kwargs", "object_id"),
    [
        ("account_id", (7, 100), {}, 7),
        ("currency", (7, 100), {"currency": "USD"}, "USD"),
        ("currency", (7, 100), {}, "EUR"),
    ],
)
def test_an_argument_is_found_wherever_the_call_puts_it(spec, args, kwargs, object_id):
    assert resolve(spec, charge, *args, **kwargs) == object_id


def test_a_callable_that_raises_is_refused_with_its_reason():
    def broken(*args, **kwargs):
        raise KeyError("account")

    with pytest.raises(ObjectIdError, match="raised KeyError: 'account'") as caught:
        resolve(broken, charge, 7, 100)

    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("spec", "object_id", "words"),
    [
        (
            "account_id",
            {"secret": 1},
            "its argument 'account_id', which object_id names, is a dict",
        ),
        ("account_id", (1, {"secret"}), "is a tuple with a set in it"),
        (len, [{}], "what its object_id callable returned is a list with a dict in it"),
    ],
)
def test_what_is_no_id_is_told_by_its_origin_and_type_alone(spec, object_id, words):
    with pytest.raises(ObjectIdError) as caught:
        object_key("proj.charge", object_id, spec)

    assert words in str(caught.value)
    assert "'proj.charge'" in str(caught.value)
    assert "secret" not in str(caught.value)


# At definition


def test_a_callable_that_does_not_take_the_arguments_is_refused():
    with pytest.raises(ConfigurationError, match="account_id, amount, /, currency") as caught:
        check(lambda account_id, amount, currency: None, charge)

    assert "proj.charge" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "func", "said"),
    [
        ("acount_id", charge, "Did you mean 'account_id'?"),
        ("zzz", charge, "Its arguments are account_id, amount, currency, note."),
    ],
)
def test_a_spec_that_does_not_fit_the_task_is_refused(spec, func, said):
    with pytest.raises(ConfigurationError) as caught:
        check(spec, func)

    assert said in str(caught.value)
    assert "'proj.charge'" in str(caught.value)
