"""What is stored of a result is what Celery would store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from celery import Celery, states
from celery.app.task import Context

from celery_reliable.compat.backend import MarkingBackend, result_meta, under_class


class Marking(MarkingBackend):
    def more_fields(self, request: Any) -> dict[str, Any]:
        return {"mark": request.id}


@pytest.mark.parametrize("is_extended", [False, True])
@pytest.mark.parametrize("state", [states.SUCCESS, "PROGRESS"])
@pytest.mark.parametrize("conf", [{}, {"timezone": "Asia/Kolkata"}, {"enable_utc": False}])
def test_all_fields_and_their_order(conf: dict[str, Any], state: str, is_extended: bool) -> None:
    app = Celery("it", backend="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.update(conf, result_extended=is_extended)
    backend = under_class(app.backend, Marking)
    parent = app.AsyncResult("parent")
    in_a_group = {
        "group": "group",
        "parent_id": "parent",
        "children": [app.AsyncResult("child", parent=parent)],
    }
    for more in ({}, in_a_group):
        request = Context(
            id="id", task="work", args=[1], kwargs={}, delivery_info={"routing_key": "q"}, **more
        )
        theirs = app.backend._get_result_meta({"a": 1}, state, None, request)
        ours = result_meta(backend, {"a": 1}, state, request)

        dates = [one.pop("date_done") for one in (theirs, ours)]
        assert list(ours.items()) == [*theirs.items(), ("mark", "id")]
        assert ("name" in ours) is is_extended
        if state == states.SUCCESS:
            before, after = map(datetime.fromisoformat, dates)
            assert before <= after
            assert before.utcoffset() == after.utcoffset()
        else:
            assert dates == [None, None]
    app.close()
