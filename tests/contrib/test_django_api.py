"""The JSON API: what it answers is what its document says, for who may ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import django
import pytest
import redis
from celery import Celery
from django.conf import settings
from django.core.checks import run_checks
from django.http import HttpRequest
from django.test import Client
from django.test.utils import override_settings
from jsonschema import Draft202012Validator
from ninja.security import HttpBearer
from openapi_spec_validator import OpenAPIV31SpecValidator

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django import project
from celery_reliable.contrib.django.api import OPERATIONS
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.message.envelope import Envelope
from celery_reliable.model import Reason
from celery_reliable.operations import DeadLetters, Desk
from tests.support.processes import run_python

V1 = "/reliable/v1"
ALL = ("view", "change", "delete", "operate", "see_arguments")

Ask = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("celery_project")


@pytest.fixture
def client(log_in: Any) -> Any:
    """Somebody who may do everything."""
    return log_in(*ALL)


def get(client: Any, path: str, **query: object) -> Any:
    return client.get(f"{V1}/{path}", query)


def post(client: Any, path: str, body: object, **headers: str) -> Any:
    return client.post(f"{V1}/{path}", body, content_type="application/json", **headers)


def problem(answer: Any, status: int, code: str, parameter: str | None = None) -> dict[str, Any]:
    found = answer.json()
    assert (answer.status_code, found["status"], found["code"]) == (status, status, code), found
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Cache-Control"] == "no-store"
    assert found.get("parameter") == parameter
    return dict(found)


class Document:
    """The document, by which answers are checked: nothing may be there that it does not know."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.closed = json.loads(json.dumps(document))
        for schema in self.closed["components"]["schemas"].values():
            schema.setdefault("additionalProperties", False)

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield path, method, operation

    def check(self, answer: Any, path: str, method: str = "get") -> Any:
        found = answer.json()
        responses = self.closed["paths"][f"/{path}"][method]["responses"]
        (content,) = responses[str(answer.status_code)]["content"].items()
        assert answer["Content-Type"] == content[0]
        schema = {**content[1]["schema"], "components": self.closed["components"]}
        Draft202012Validator(schema).validate(found)
        return found


@pytest.fixture
def document(client: Any) -> Document:
    return Document(get(client, "openapi.json").json())


# The document.


def test_the_document_is_one_and_names_every_address(document: Document) -> None:
    OpenAPIV31SpecValidator(document.document).validate()
    assert document.document["servers"] == [{"url": V1}]
    assert {(path, method) for path, method, _ in document.operations()} == {
        *((f"/{one.path}", "post" if one.is_act else "get") for one in OPERATIONS),
        ("/openapi.json", "get"),
    }
    names = [operation["operationId"] for _, _, operation in document.operations()]
    assert len(set(names)) == len(names) > 15
    assert all(operation["summary"] for _, _, operation in document.operations())


def test_every_read_answers_as_the_document_says(
    client: Any, document: Document, put: Callable[..., None], bill: Any
) -> None:
    put("one")
    put("two")
    bill.apply_async(("secret-1",), task_id="live", countdown=3600)
    group = get(client, "dead-letters/groups").json()["groups"][0]["group"]
    queries: dict[str, list[dict[str, object]]] = {
        "status": [{}, {"oldest_seconds": "0.5", "recent_seconds": 1}],
        "tasks": [{}, {"state": "waiting"}, {"state": "dead", "task": "shop.*", "limit": 1}],
        "task": [{"id": "live"}, {"id": "one"}, {"id": "nobody"}, {"id": "one", "arguments": 1}],
        "objects": [{}],
        "object": [{"key": "x"}, {"task": "shop.bill", "object_id": "7"}],
        "workers": [{}],
        "orders": [{}],
        "run": [{"id": "nobody"}],
        "runs": [{}],
        "dead-letters": [{}, {"group": group, "limit": 1}, {"reason": "lost"}, {"group": "no"}],
        "dead-letters/groups": [{}, {"exception": "ValueError"}],
        "audit": [{}, {"limit": 1}],
        "openapi.json": [{}],
    }
    reads = {path.strip("/") for path, method, _ in document.operations() if method == "get"}
    assert set(queries) == reads

    found = {
        path: [document.check(get(client, path, **query), path) for query in asked]
        for path, asked in queries.items()
    }

    assert found["status"][0]["tasks"]["dead"] == 2
    assert [one["task_id"] for one in found["tasks"][1]["items"]] == ["live"]
    assert found["task"][0]["why"]["kind"] == "eta"
    assert found["task"][2]["code"] == "unknown_task"
    assert len(found["dead-letters"][0]["items"]) == 2
    assert len(found["dead-letters"][1]["items"]) == 1
    assert not found["dead-letters"][1]["is_last"]
    assert found["dead-letters"][3]["code"] == "unknown_group"
    assert found["task"][3]["args"] == ["secret-1"]
    for path, answers in found.items():
        for query, answer in zip(queries[path], answers, strict=True):
            assert ("secret" in json.dumps(answer)) == ("arguments" in query), (path, query)


def test_every_act_answers_as_the_document_says(
    client: Any, document: Document, put: Callable[..., None], bill: Any
) -> None:
    put("one")
    put("two")
    live = bill.apply_async(countdown=3600).id
    drain = {"kind": "drain", "target": "a@*", "why": "upgrade", "for_seconds": 60}
    bodies: dict[str, dict[str, object] | None] = {
        "dead-letters/replay": {"ids": ["one", "nobody"]},
        "dead-letters/discard": {"filter": {"task": "shop.b*"}, "dry_run": True},
        "tasks/revoke": {"ids": [live, "nobody", live], "if_running": "kill"},
        "orders/give": {**drain, "later": True},
        "orders/resume": {"orders": ["a@*"]},
        "sweep": None,
    }
    assert set(bodies) == {
        path[1:] for path, method, _ in document.operations() if method == "post"
    }
    problem(post(client, "orders/give", drain), 400, "bad_parameter", "target")
    problem(post(client, "orders/resume", {"orders": ["a@*"]}), 404, "unknown_order")

    found = {
        path: document.check(post(client, path, body), path, "post")
        for path, body in bodies.items()
    }

    assert found["dead-letters/replay"]["done"] == found["dead-letters/discard"]["done"] == 1
    assert found["tasks/revoke"]["gone"] == ["nobody"]
    assert (found["tasks/revoke"]["done"], found["tasks/revoke"]["ended"]) == (1, [live])
    assert "by api:user-0" in get(client, "task", id=live).json()["why"]["sentence"]
    assert found["orders/resume"]["items"][0]["id"] == found["orders/give"]["id"]
    assert found["sweep"]["ran"]
    assert post(client, "sweep", {}).json() == {"ran": False, "report": None}


# Who may ask what.

#: By the address of an act: any one of each set is needed.  All that is read needs the same.
NEEDED: dict[str, list[set[str]]] = {
    "dead-letters/replay": [{"change"}],
    "dead-letters/discard": [{"delete"}],
    "tasks/revoke": [{"operate"}],
    "orders/give": [{"operate"}],
    "orders/resume": [{"operate"}],
    "sweep": [{"operate"}],
}
SEES = [{"view", "change"}]


def test_each_operation_is_refused_to_who_lacks_its_right(
    document: Document, log_in: Any, put: Callable[..., None], letters: DeadLetters
) -> None:
    put("one")
    found = {(path.strip("/"), method) for path, method, _ in document.operations()}
    assert set(NEEDED) == {path for path, method in found if method == "post"}
    client_with = cache(log_in)

    def ask(client: Any, path: str, method: str) -> Any:
        if method == "get":
            return get(client, path, **({"id": "one"} if path == "task" else {}))
        return post(client, path, {"id": "nobody", "args": []} if "letter/" in path else {})

    for path, method in sorted(found):
        needed = NEEDED.get(path, SEES)
        document.check(ask(Client(), path, method), path, method)
        problem(ask(Client(), path, method), 401, "not_authenticated")
        for any_of in needed:
            others = client_with(*sorted(set(ALL) - any_of))
            problem(ask(others, path, method), 403, "not_permitted")
        enough = client_with(*sorted({max(any_of) for any_of in needed}))
        assert ask(enough, path, method).status_code not in (401, 403), path
    assert letters.count() == 1


def test_arguments_need_a_right_of_their_own(
    put: Callable[..., None], log_in: Any, letters: DeadLetters
) -> None:
    put("one")
    viewer = log_in("view", "change", "delete", "operate")
    seer = log_in("view", "see_arguments")

    problem(get(viewer, "task", id="one", arguments=1), 403, "not_permitted")
    assert "secret" not in get(viewer, "task", id="one").content.decode()
    assert "secret" not in get(seer, "task", id="one").content.decode()
    assert "secret-1" in get(seer, "task", id="one", arguments="true").content.decode()


def test_a_session_needs_the_token_of_csrf_to_change_anything(
    put: Callable[..., None], log_in: Any, letters: DeadLetters
) -> None:
    put("one")
    client = log_in("delete", csrf=True)

    problem(post(client, "dead-letters/discard", {"ids": ["one"]}), 403, "csrf_failed")
    form = client.post(f"{V1}/dead-letters/discard", {"ids": ["one"]})
    problem(form, 415, "not_json")
    assert letters.count() == 1
    client.cookies["csrftoken"] = token = "a" * 32
    answer = post(client, "dead-letters/discard", {"ids": ["one"]}, HTTP_X_CSRFTOKEN=token)
    assert answer.json()["done"] == 1
    assert letters.count() == 0


class User:
    """Somebody whom Django does not know."""

    def __init__(self, name: str, *rights: str) -> None:
        self.name = name
        self.rights = rights

    def __str__(self) -> str:
        return self.name


class Token(HttpBearer):
    """A project's own."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        users = {"d1": User("deploy", "view", "discard"), "w1": User("watch", "view")}
        return users.get(token)


def may(user: Any, right: str) -> bool:
    return right in getattr(user, "rights", ())


OWN = {
    "AUTHENTICATION": [
        "tests.contrib.test_django_api.Token",
        "celery_reliable.contrib.django.api.SessionAuthentication",
    ],
    "PERMISSION": "tests.contrib.test_django_api.may",
}


def test_a_project_says_by_its_own_classes_who_asks_and_what_he_may(
    put: Callable[..., None], letters: DeadLetters, desk: Desk, log_in: Any
) -> None:
    put("one")
    client, discard = Client(enforce_csrf_checks=True), ("dead-letters/discard", {"ids": ["one"]})
    with override_settings(CELERY_RELIABLE_API=OWN):
        unknown = post(client, *discard, HTTP_AUTHORIZATION="Bearer x")
        problem(unknown, 401, "not_authenticated")
        assert unknown["WWW-Authenticate"] == "Bearer"
        problem(post(client, *discard, HTTP_AUTHORIZATION="Bearer w1"), 403, "not_permitted")
        # A session is asked for, too; a superuser has no right of the project's.
        super_user = log_in(is_superuser=True)
        problem(get(super_user, "workers"), 403, "not_permitted")
        assert letters.count() == 1

        assert post(client, *discard, HTTP_AUTHORIZATION="Bearer d1").status_code == 200
        found = client.get(f"{V1}/openapi.json", HTTP_AUTHORIZATION="Bearer w1").json()

    assert letters.count() == 0
    OpenAPIV31SpecValidator(found).validate()
    assert set(found["components"]["securitySchemes"]) == {"Token", "SessionAuthentication"}
    assert {one.by for one in desk.audit()} == {"api:deploy"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "not a mapping"),
        ({"AUTHENTICATION": ["no.where"]}, "No module named 'no'"),
        ({"PERMISSION": "tests.contrib.test_django_api.OWN"}, "test_django_api.OWN"),
    ],
)
def test_settings_that_are_wrong_let_nobody_in_and_are_told_by_the_check(
    client: Any, wrong: object, said: str
) -> None:
    with override_settings(CELERY_RELIABLE_API=wrong):
        found = [one for one in run_checks() if one.id == "celery_reliable.E004"]
        assert [said in one.msg for one in found] == [True]
        with pytest.raises(ConfigurationError, match=said):
            get(client, "workers")


# What is done.


def test_a_queue_that_is_not_there_is_a_conflict(
    client: Any, document: Document, celery_project: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_project.amqp.queues, "create_missing", False)
    path = "dead-letters/replay"
    answer = post(client, path, {"all": True, "to_queue": "nowhere"})
    problem(answer, 409, "cannot_replay")
    document.check(answer, path, "post")


def test_what_no_worker_can_read_is_told(client: Any, celery_project: Celery) -> None:
    reliable_of(celery_project).ledger.bury_message(
        "bad", Reason.UNPROCESSABLE, exception="x", traceback="", message="{}", name=""
    )

    found = post(client, "dead-letters/replay", {"ids": ["bad"]}).json()
    assert (found["done"], found["failed"]) == (0, 1)
    assert "no worker can read" in found["problem"]


def test_a_choice_of_ids_a_group_or_all(
    client: Any,
    document: Document,
    put: Callable[..., None],
    letters: DeadLetters,
    shared_redis: redis.Redis,
) -> None:
    for name in ("one", "two", "three"):
        put(name)
    put("key", exception="KeyError: 'x'")
    put("late", exception="OSError: y")
    groups = get(client, "dead-letters/groups", exception="KeyError").json()["groups"]

    body = {"ids": ["one", "nobody"], "rate": 1000, "to_queue": "slow"}
    by_id = post(client, "dead-letters/replay", body)
    by_group = post(client, "dead-letters/discard", {"group": groups[0]["group"]})
    no_group = post(client, "dead-letters/replay", {"group": "nobody"})

    found = document.check(by_id, "dead-letters/replay", "post")
    assert (found["done"], found["gone"], found["is_whole"]) == (1, 1, True)
    assert shared_redis.llen("slow") == 1
    assert document.check(by_group, "dead-letters/discard", "post")["done"] == 1
    problem(no_group, 404, "unknown_group")
    assert {one.task_id for one in letters.list()} == {"two", "three", "late"}
    assert post(client, "dead-letters/discard", {"all": True}).json()["done"] in (2, 3)
    notes = document.check(get(client, "audit"), "audit")["items"]
    assert {one["by"] for one in notes} == {"api:user-0"}
    found = [(one["act"], one["phase"], one["done"]) for one in notes[-2:]]
    assert found == [("replay", "end", 1), ("replay", "begin", 0)]


# What is wrong with a request.


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        ("tasks", "limit=501", "limit"),
        ("tasks", "limit=" + "9" * 5000, "limit"),
        ("tasks", "state=asleep", "state"),
        ("tasks", "older_than_seconds=nan", "older_than_seconds"),
        ("tasks", "task=" + "x" * 1001, "task"),
        ("tasks", "cursor=%00", "cursor"),
        ("dead-letters", "offset=1", "offset"),
        ("task", "id=one&arguments=perhaps", "arguments"),
        ("object", "task=x", "object_id"),
        ("object", "key=x&object_id=1", "key"),
        ("workers", "%FF=1", "\ufffd"),
        ("status", "oldest_seconds=1e999", "oldest_seconds"),
    ],
)
def test_a_bad_parameter_is_named(client: Any, path: str, query: str, parameter: str) -> None:
    problem(client.get(f"{V1}/{path}?{query}"), 400, "bad_parameter", parameter)


#: What a body has -> the code and the parameter of its refusal.
BODIES: list[tuple[Any, str, str | None]] = [
    # Nobody means all by saying nothing.
    ({"filter": {}}, "bad_parameter", None),
    ({"all": False}, "bad_parameter", None),
    ({"ids": ["one"], "filter": {"task": "x"}}, "bad_parameter", None),
    ({"filter": {"what": "x"}}, "bad_parameter", "filter.what"),
    ({"all": "true"}, "bad_parameter", "all"),
    ({"ids": ["one", 2]}, "bad_parameter", "ids[1]"),
    ({"ids": ["x"] * 1001}, "bad_parameter", "ids"),
    ({"all": True, "rate": 1e-300}, "bad_parameter", "rate"),
    ({"all": True, "before": "2026-11-22T10:00:00"}, "bad_parameter", "before"),
    ({"all": True, "cursor": "*"}, "bad_parameter", "cursor"),
    ([], "bad_parameter", None),
    (b'{"id": "\xff"}', "bad_body", None),
    (b"{", "bad_body", None),
    (b'{"id": NaN}', "bad_parameter", "id"),
    (b'{"id": "\\ud800"}', "bad_parameter", "id"),
    (b"[" * 100_000, "bad_body", None),
    (b'{"ids": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "bad_body", None),
]


@pytest.mark.parametrize("path", ["dead-letters/replay", "dead-letters/discard"])
def test_a_bad_body_does_nothing(
    client: Any, put: Callable[..., None], letters: DeadLetters, path: str
) -> None:
    put("one")
    for body, code, parameter in BODIES:
        problem(post(client, path, body), 400, code, parameter)
    assert post(client, path, b" " * 3_000_000).status_code == 400
    problem(post(client, f"{path}?ids=x", {"ids": ["x"]}), 400, "bad_parameter", "ids")
    assert letters.count() == 1


def test_other_methods_and_addresses_are_refused(client: Any) -> None:
    wrong = client.get(f"{V1}/dead-letters/discard")
    assert (wrong.status_code, wrong["Allow"]) == (405, "POST")
    assert client.delete(f"{V1}/workers").status_code == 405
    assert client.get(f"{V1}/workers/").status_code == 404


def test_a_ledger_that_is_away_is_told_without_its_password(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "_PATIENCE_SECONDS", 0.1)
    with override_settings(CELERY_RELIABLE={"REDIS_URL": "redis://:s3cret@127.0.0.1:1/0"}):
        answers = [
            get(client, "status"),
            get(client, "dead-letters"),
            post(client, "dead-letters/discard", {"ids": ["x"]}),
        ]

    for answer in answers:
        assert "s3cret" not in json.dumps(problem(answer, 503, "ledger_unavailable"))


# Ids and texts of anybody.

HOSTILE = (
    "a/b",
    "../status",
    "a%2Fb",
    "%",
    "a b+c&d=e#f",
    "?id=x",
    "<script>alert(1)</script>",
    "\x00\x1b[31m\r\n",
    "ünïcode-\U0001f600",
    "null",
    "\\ud800",
)


def test_any_id_can_be_asked_for_and_discarded(
    client: Any,
    document: Document,
    put: Callable[..., None],
    letters: DeadLetters,
    celery_project: Celery,
    shared_redis: redis.Redis,
) -> None:
    put("bystander")
    # Another client of the server's may have written one that is not UTF-8.
    shared_redis.zadd(reliable_of(celery_project).ledger.keys.dead, {b"\xff\xfe": 1})
    for task_id in HOSTILE:
        put(task_id)
        found = document.check(get(client, "dead-letters"), "dead-letters")["items"]
        shown = document.check(get(client, "task", id=task_id), "task")
        path = "dead-letters/discard"
        gone = document.check(post(client, path, {"ids": [task_id]}), path, "post")

        # Both may be of one millisecond.
        assert {one["task_id"] for one in found} == {task_id, "bystander"}
        assert (shown["task_id"], gone["done"]) == (task_id, 1)
    for path in ("status", "dead-letters", "dead-letters/groups", "tasks"):
        document.check(get(client, path), path)
    assert [one.task_id for one in letters.list()] == ["bystander"]


def test_what_json_has_not_is_answered_as_json(
    client: Any, document: Document, celery_project: Celery
) -> None:
    """Half a character, no number, and a megabyte."""
    headers = {"id": "half", "task": "shop.bill", "argsrepr": "('\udcff',)"}
    body = b'[["\\ud800 \\\\ud800", NaN, 1e999, ' + b"1" * 50 + b'], {"x": "' + b"y" * 1_000_000
    envelope = Envelope(
        body + b'"}, {}]', "application/json", "utf-8", headers, {}, "", "queue-\udcff"
    )
    reliable_of(celery_project).ledger.bury_message(
        "half",
        Reason.FAILED,
        exception="E: \udcff\x00<b>",
        traceback="",
        message=envelope.to_text(),
        name="shop.bill",
    )

    answer = get(client, "task", id="half", arguments=1)

    answer.content.decode("utf-8").encode("utf-8")
    found = document.check(answer, "task")
    assert found["args"] == ["\\ud800 \\ud800", None, None, int("1" * 50)]
    assert found["queue"] == "queue-\\udcff"
    assert len(document.check(get(client, "dead-letters"), "dead-letters")["items"]) == 1


# What it rests upon.


def test_without_its_extra_the_api_says_which_one_is_missing() -> None:
    asked = (
        "import sys; sys.modules['ninja'] = None\n"
        "from django.conf import settings; settings.configure()\n"
        "import celery_reliable.contrib.django.checks\n"
        "import celery_reliable.contrib.django.urls"
    )

    ran = run_python("-c", asked, code=1)

    assert "ConfigurationError: The JSON API" in ran.stderr
    assert "celery-reliable[api]" in ran.stderr.splitlines()[-1]


def test_where_everybody_has_to_log_in_nobody_is_sent_to_a_page(client: Any) -> None:
    if django.VERSION < (5, 1):
        pytest.skip("Django has LoginRequiredMiddleware since 5.1")
    required = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    with override_settings(MIDDLEWARE=required):
        problem(get(Client(), "status"), 401, "not_authenticated")
        assert get(client, "workers").status_code == 200
