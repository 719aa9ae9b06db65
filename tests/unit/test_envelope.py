"""What is read of a message that anybody may have written."""

from __future__ import annotations

import pytest

from celery_reliable.message.envelope import HEADER, Envelope, Stamp
from celery_reliable.message.payload import RETURNS, check_delivered, returns_of


@pytest.mark.parametrize("generation", ["1", "1795288823019", "9" * 20])
def test_a_stamp_is_read_as_it_was_written(generation: str) -> None:
    stamp = Stamp(generation, "0-abc")

    for task_id in ("one", "\u00e4 \u20ac", "a:b", "\ud800"):
        header = stamp.of_task(task_id)
        assert Stamp.of({HEADER: header, "id": task_id}) == stamp
        # Copied onto another id it says nothing.
        assert Stamp.of({HEADER: header, "id": f"{task_id} again"}) == Stamp()
        assert Stamp.of({HEADER: header}) == Stamp.of({HEADER: header, "id": 7}) == Stamp()


@pytest.mark.parametrize(
    "value",
    ["", "1", ":0-abc", "-1:0-abc", "\u00b2:0-abc", "\u0663:0-abc", "9" * 21 + ":0-abc", 7, None],
)
def test_what_is_no_stamp_counts_as_none(value: object) -> None:
    assert Stamp.of({HEADER: value, "id": "one"}) == Stamp()
    if isinstance(value, str):
        digest = Stamp("1", "0").of_task("one").rpartition(":")[2]
        assert Stamp.of({HEADER: f"{value}:{digest}", "id": "one"}) == Stamp()


@pytest.mark.parametrize("value", [None, -1, -(10**9), True, 1.5, "3", [], {}])
def test_what_is_no_count_of_returns_counts_as_none(value: object) -> None:
    """A message that counts up from below would be returned by each worker that it kills."""
    assert returns_of({"properties": {RETURNS: value}}) == 0
    assert returns_of({"properties": {RETURNS: 3}}) == 3


class Delivered:
    """A message as a consumer sees it."""

    def __init__(self, headers: object, payload: object = ((), {}, {})) -> None:
        self.headers = headers
        self._payload = payload

    @property
    def payload(self) -> object:
        if isinstance(self._payload, Exception):
            raise self._payload
        return self._payload


@pytest.mark.parametrize("limits", ["ab", 3, [1], [1, 2, 3], ["1", None], {"hard": 1, "soft": 2}])
def test_time_limits_that_would_end_a_worker_are_named(limits: object) -> None:
    with pytest.raises(ValueError, match="timelimit is"):
        check_delivered(Delivered({"task": "x", "timelimit": limits}))


@pytest.mark.parametrize("body", [[], [1, 2, 3], [[], {}], [[], {}, 7], ["ab", {}, {}]])
def test_bodies_that_would_fail_before_anybody_begins_are_refused(body: object) -> None:
    with pytest.raises(ValueError, match="no list of arguments"):
        check_delivered(Delivered({"task": "x"}, body))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        '{"body": 1, "headers": [], "properties": {}}',
        '{"body": "", "headers": {}, "properties": 7}',
        '{"body": "", "headers": {}, "properties": {"delivery_info": "x"}}',
        '{"body": "abc", "headers": {}, "properties": {"body_encoding": "base64"}}',
    ],
)
def test_what_is_no_stored_message_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a stored message"):
        Envelope.from_text(text)
