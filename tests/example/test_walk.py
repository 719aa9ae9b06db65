"""The walk through the example project, as its README has it: what the model and the archive allow
is kept, what only some machines can do is done there, and what an operator stops waits.
"""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import django
import pytest

from tests.docs.blocks import Page
from tests.example.conftest import EXAMPLE
from tests.support.django_project import DjangoProject
from tests.support.processes import REPOSITORY
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

PAGES = ("example_project/README.rst",)
README = Page(*PAGES)
STARTED, LOADED = README.of("bash", section="Run it")
STRUCK, RESUMED, ARCHIVED, DRAINED = README.of("bash", section="The stop button")
MACHINE = "gpu-1"


class Example(DjangoProject):
    """The example project, with its files in a folder of the test's."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.server = server
        self.database = folder / "db.sqlite3"
        super().__init__(
            folder,
            {},
            environ={
                "DJANGO_SETTINGS_MODULE": "example.settings",
                "PYTHONPATH": os.pathsep.join([str(EXAMPLE), str(REPOSITORY)]),
                "BROKER_URL": server.url(),
                "EXAMPLE_DATABASE": str(self.database),
                "EXAMPLE_ARCHIVE": str(folder / "archive"),
                "EXAMPLE_MODELS": str(folder / "models"),
                "EXAMPLE_CHECK_SECONDS": "0.1",
            },
        )

    def listed(self, command: str) -> Any:
        """What a command says as JSON."""
        return json.loads(self.type(f"celery -A example reliable {command} --json"))

    def all_have(self, column: str, *, but: int = 0) -> bool:
        """Whether all documents but so many have something in this column."""
        return sum(1 for row in self.rows() if row[column] in ("", "[]", None)) == but

    def rows(self) -> list[Any]:
        """The documents."""
        with closing(sqlite3.connect(self.database, timeout=20)) as database:
            database.row_factory = sqlite3.Row
            return database.execute("select * from documents_document order by id").fetchall()

    def start_as_the_page_does(self, name: str) -> None:
        """Start the worker of this name."""
        (command,) = (one for one in STARTED.commands if f"-n {name}@" in one)
        words = shlex.split(command)
        assert words[:4] == ["celery", "-A", "example", "worker"]
        self.worker(name, 2, app="example", is_ready=lambda: True)

    def calls(self) -> list[dict[str, Any]]:
        """What the API of the model was asked, in order."""
        path = self.folder / "models" / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def example(tmp_path: Path, redis_server: RedisServer) -> Iterator[Example]:
    if django.VERSION < (5, 1):
        pytest.skip("the example tells SQLite how to begin transactions, which needs Django 5.1")
    project = Example(tmp_path, redis_server)
    yield project
    project.close()


def test_the_walk(example: Example, tmp_path: Path) -> None:
    checked_and_no_machine_is_there(example, tmp_path)
    stopped(example)
    as_many_as_are_allowed(example)
    client = example.server.client()
    wait_for(lambda: not client.keys("{*}:task:*"), 60, "all have ended, none as a dead letter")
    assert README.left() == []


def checked_and_no_machine_is_there(example: Example, tmp_path: Path) -> None:
    """The checks; and what needs a machine waits until that starts."""
    folder = tmp_path / "acme"
    folder.mkdir()
    (folder / "acme.txt").write_text("Acme is small. It waits for nobody.\n")
    example.start_as_the_page_does("alpha")
    migrate, *_ = STARTED.commands
    samples, of_acme = LOADED.commands
    for command in (migrate, samples):
        example.type(command)
    assert "1 documents will be checked" in example.type(of_acme.replace("FOLDER", str(folder)))
    example.python("from documents.tasks import embed_document\nembed_document.delay(1)")
    with pytest.raises(AssertionError, match="Nothing was published"):
        example.type("python manage.py load_model v1")
    wait_for(lambda: example.all_have("checked_at"), 60, "the checks")
    assert {row["task_status"] for row in example.rows()} == {"succeeded"}
    assert example.rows()[0]["embedding"] == "[]"

    example.start_as_the_page_does(MACHINE)
    wait_for(lambda: example.rows()[0]["embedding"] != "[]", 60, "the machine")


def stopped(example: Example) -> None:
    """Nobody calls the model's API, and all else goes on."""
    strike, *commands, stop = STRUCK.commands
    example.type(strike)
    wait_for(lambda: example.listed("orders")["items"][0]["heard"] >= 2, 20, "both know of it")
    said = "".join(example.type(command) for command in commands)
    parked = example.listed("tasks --state waiting")["items"]
    # Two of the samples have places, and may be struck; all others never came to a queue.
    in_line = [one for one in parked if "summ" in one["name"] and one["why"]["kind"] == "object"]
    assert len(in_line) == len(example.rows()) - 1 - 2, parked
    example.known["ID"] = in_line[-1]["task_id"]
    assert "1 task revoked" in example.type(stop)
    assert "by " in said
    assert "the bill" in said

    wait_for(lambda: example.all_have("embedding"), 60, "what the machine does")
    loaded = example.folder / "models" / "loaded"
    wait_for(lambda: list(loaded.glob("*/v2")), 60, "the machine has loaded it")
    assert [path.name.partition("@")[0] for path in loaded.iterdir()] == [MACHINE]
    assert example.calls() == []
    # A message that is still acknowledged keeps its task from being sent, until the next pass.
    # Those that had places, and the one of acme.
    wait_for(
        lambda: example.listed("orders")["items"][0]["waiting"] == 2 + 1, 30, "they are parked"
    )
    client = example.server.client()
    wait_for(lambda: not client.keys("unacked:*"), 30, "what was parked to be acknowledged")


def as_many_as_are_allowed(example: Example) -> None:
    """As many calls of the model a second, and as many connections to the archive."""
    n_documents = len(example.rows())
    resume, *looks = RESUMED.commands
    said = example.type(resume)
    wait_for(
        lambda: sum(example.listed("status")["held_back"].get("rate", {}).values()),
        30,
        "some to be held back: all came at once",
    )
    for command in (*looks, *ARCHIVED.commands, *DRAINED.commands):
        said += example.type(command)
    assert "of 2 places taken" in said
    assert said.count(f"{n_documents} documents will be archived") == 2
    # The strike and the drain.
    assert " ".join(said.split()).count("it is over: what waits for it is being sent") == 2

    # But for the one that was stopped.
    wait_for(lambda: example.all_have("summary", but=1), 60, "the summaries")
    # All others were published before the one of acme.
    assert [one["said"] for one in example.calls()].index("Acme is small.") < 5
    archive = example.folder / "archive"
    stored = lambda: {path.stem for path in archive.glob("*.json")}  # noqa: E731
    wait_for(lambda: len(stored()) == n_documents, 60, "the archive")
