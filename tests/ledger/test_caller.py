"""Lost requests, lost replies, errors and silence between a process and the ledger's server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import Ledger
from celery_reliable.ledger.answers import Buried, Claimed, Recorded, Settled
from celery_reliable.ledger.scripts import script
from celery_reliable.model import Claim, Reason, TaskRef
from tests.ledger.scene import LOOK_MS, Published, Scene, open_ledger
from tests.support.forking import Working, exit_code_of_a_child, has_no_holder
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer, free_port

PATIENCE_SECONDS = 0.3


@pytest.fixture
def far(proxy: RedisProxy, redis_server: RedisServer) -> Iterator[Scene]:
    """A ledger behind the proxy, and a client beside it."""
    ledger = open_ledger(proxy.url(), "own")
    client = redis_server.client()
    scene = Scene(ledger, client)
    scene.start_worker("me")
    yield scene
    ledger.close()
    client.close()


@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_claim_is_had_once_whatever_is_lost(far: Scene, proxy: RedisProxy, what: str) -> None:
    """And its message is sent once before, and its settlement counts once."""
    generation = far.publish("another").generation
    task, epoch = TaskRef("task", "app.work"), far.ledger.senders.new_epoch(0)
    drop = proxy.drop_request if what == "request" else proxy.drop_reply
    rules = [drop(script=script(name).sha, times=2) for name in ("record", "claim", "settle")]

    assert isinstance(far.record(task, epoch, queue="celery"), Recorded)
    assert far.client.lrange("celery", 0, -1) == [far.record_of().message.encode()]
    assert far.ask(Published(task, epoch, generation), token="mine") == Claimed(1, 0, "")
    assert far.record_of().attempt == 1
    assert far.ledger.settle(Claim("task", 1, "me", "mine")) == Settled()

    assert [rule.acted for rule in rules] == [2, 2, 2]
    assert far.ledger.find("task") is None


@pytest.mark.parametrize("what", ["nothing", "request", "reply", "script"])
def test_what_is_asked_for_many_is_done_for_each_whatever_is_lost(
    far: Scene, proxy: RedisProxy, what: str
) -> None:
    for number in range(5):
        far.publish(f"task {number}", due_in_ms=0)
    _, dues = far.ledger.due(10)
    far.client.delete(far.ledger.keys.record("task 4"))
    if what == "script":
        far.client.script_flush()
    elif what != "nothing":
        drop = proxy.drop_request if what == "request" else proxy.drop_reply
        rule = drop(script=script("postpone").sha, containing="task 2")

    far.ledger.postpone_all([(due, (n + 1) * LOOK_MS) for n, due in enumerate(dues)])

    assert what in ("nothing", "script") or rule.acted == 1
    now_ms = far.workers.time_ms()
    looks = [int(far.seen_due(f"task {n}").due_ms) - now_ms for n in range(5)]
    assert [round(look / LOOK_MS) for look in looks[:4]] == [1, 2, 3, 4]
    # A record that is gone needs nobody to look.
    assert far.seen_due("task 4").due_ms == "0"


def test_what_the_server_refuses_of_many_is_a_refusal(far: Scene) -> None:
    messages = [far.publish(f"task {number}") for number in range(3)]
    # The server knows the script.
    far.ledger.named.divert_all([(one.task.id, one.epoch) for one in messages])
    far.client.set(far.ledger.keys.record("task 1"), "no record")

    with pytest.raises(LedgerRefused):
        far.ledger.named.divert_all([(one.task.id, one.epoch) for one in messages])


def unavailable(ledger: Ledger) -> LedgerUnavailable:
    started = time.monotonic()
    with pytest.raises(LedgerUnavailable) as caught:
        ledger.find("task", patience_seconds=PATIENCE_SECONDS)
    assert time.monotonic() - started >= PATIENCE_SECONDS
    return caught.value


def chain(error: BaseException | None) -> str:
    """All that a traceback would say of an error and of what caused it."""
    said = ""
    while error is not None:
        said += f"{error!r} {error}\n"
        error = error.__cause__ or error.__context__
    return said


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    port = free_port()
    for url in (
        f"redis://:s3cret@127.0.0.1:{port}/0",
        f"redis://someone:s3cret@127.0.0.1:{port}/0",
        f"rediss://:s3cret@127.0.0.1:{port}/0",
        f"sentinel://:s3cret@127.0.0.1:{port};sentinel://:s3cret@127.0.0.1:{port}",
    ):
        options = {"master_name": "mymaster"} if url.startswith("sentinel") else None
        ledger = open_ledger(url, "own", transport_options=options)

        error = unavailable(ledger)

        assert "s3cret" not in chain(error)
        assert f"127.0.0.1:{port}" in str(error)
        assert len(str(error)) < 350
        assert error.operation == "find"
        ledger.close()


def test_an_error_of_the_server_is_a_refusal_at_once(scene: Scene) -> None:
    scene.client.set(scene.ledger.keys.record("task"), "no hash")
    started = time.monotonic()

    with pytest.raises(LedgerRefused, match="WRONGTYPE") as caught:
        scene.publish()

    assert caught.value.operation == "record"
    assert "WRONGTYPE" in str(caught.value.reply)
    assert time.monotonic() - started < 1


def test_text_that_is_no_unicode_is_kept_as_it_can_be_written(scene: Scene) -> None:
    """What `os.fsdecode` makes of a file's name, say: a half of a character."""
    task_id, said = "a file\udcff", "no such file: '\udcff'"
    claim = scene.claim(scene.publish(task_id))

    answer = scene.ledger.bury(claim, Reason.FAILED, exception=said, traceback=f"in {said}")

    assert isinstance(answer, Buried)
    letter = scene.letter(task_id)
    assert letter.exception == r"no such file: '\udcff'"
    assert letter.traceback == r"in no such file: '\udcff'"
    assert [id_ for id_, _ in scene.ledger.letters_after(None, 100)] == [r"a file\udcff"]


#: Of Python 3.12 and later: it is what these tests are about.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
WAIT_SECONDS = 10.0


@FORKS
def test_a_fork_waits_for_the_next_step_at_the_ledger(working, redis_server):
    ledger = open_ledger(redis_server.url(), "own")

    def steps(thread: Working) -> None:
        while not thread.stop_asked():
            with thread.lock:
                thread.has_begun.set()
                thread.stop_asked(0.05)
            ledger.find("task")

    thread = working(steps)
    codes = [exit_code_of_a_child(lambda: has_no_holder(thread.lock)) for _ in range(5)]
    assert codes == [0] * 5
    thread.ask_to_stop()
    assert thread.join(WAIT_SECONDS)
    ledger.close()
