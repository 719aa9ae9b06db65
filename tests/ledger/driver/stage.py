"""What all worlds of a process share: one Redis, its scripts on the driver's clock, two apps."""

from __future__ import annotations

import hashlib
import multiprocessing.util
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kombu import pools
from kombu.utils.uuid import uuid as kombu_uuid
from redis.lock import Lock

from celery_reliable import broker, events
from celery_reliable.app import reliable_of
from celery_reliable.broker import unacked
from celery_reliable.ledger import attempts, scripts, transitions
from celery_reliable.redis_io import Script, by_position
from tests.ledger.driver import clock, indexes, mutants, quiet, tasks
from tests.ledger.driver.asking import Asking
from tests.ledger.driver.wire import OWN
from tests.support.redis_server import RedisServer

if TYPE_CHECKING:
    from typing_extensions import Self

#: A hash that is small keeps its fields in the order in which they came, and a large one in another
#: order on each server.
OPTIONS = {
    "appendonly": "no",
    "hash-max-ziplist-entries": "1000000",
    "hash-max-ziplist-value": "1000000000",
}

Snapshot = dict[int, dict[bytes, tuple[int, bytes]]]


class Stage:
    """Lasts as long as the process: it changes modules, and nothing of that is taken back."""

    def __init__(self, directory: Path) -> None:
        self._server = RedisServer(directory, OPTIONS)
        self._server.start()
        self.port = self._server.port
        quiet.hush()
        self._put_scripts_on_a_clock()
        self.apps = {flag: tasks.make_app(self.port, is_apart=flag) for flag in (False, True)}
        for app in self.apps.values():
            quiet.trace_tasks(app)
            # Made when they are first asked for, and from then on the same.
            for name in ("oid", "thread_oid"):
                getattr(app, name)
            app.backend.client.ping()
            # Nobody waits for results here.
            app.backend.on_task_call = lambda *_: None
            app.backend.add_pending_result = lambda result, **_: result
            app.backend.remove_pending_result = lambda result: result
        self.client: Any = self._server.client(client_name=OWN)
        asking, there = Asking(self.port), Asking(self.port, db=1)
        #: Asks the server something for the driver, in no time.
        self.ask = asking.ask
        #: The same, in the database of each app's queues.
        self.ask_in = {False: asking.ask, True: there.ask}
        self._own_texts: list[str] = []
        self.pass_time = self.script(clock.PASS)
        self.look = self.script(indexes.LOOK)
        self.unlisted = self.script(indexes.UNLISTED)
        self.brokers: dict[bool, Any] = {
            False: self.client,
            True: self._server.client(db=1, client_name=OWN),
        }
        #: What the server knows of scripts is not what it knew at first: it has forgotten some, or
        #: heard of one as it was first run, as each pair of them is.
        self.is_taught = True
        clients = (str(one.client_id()) for one in self.brokers.values())
        self._own_ids = {asking.id, there.id, *clients}
        # Notes are for people, and nobody in these worlds reads them: each would be one more turn
        # of whoever tells of something.
        self._no_notes = patch.object(events.Event, "_note")

    def __enter__(self) -> Self:
        self._no_notes.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._no_notes.stop()
        self._server.kill()

    def _put_scripts_on_a_clock(self) -> None:
        found = {}

        def source(name: str) -> str:
            return mutants.applied(f"ledger/lua/{name}.lua", scripts.source(name))

        functions = source(scripts.FUNCTIONS)
        for name in scripts.names():
            text = scripts.composed(source(name), functions)
            found[name] = Script.of(name, clock.on_a_clock(text))
        for module in (transitions, attempts):
            module.script = found.__getitem__  # type: ignore[attr-defined]
        folder = resources.files(broker).joinpath("lua")

        def of_broker(name: str) -> str:
            text = folder.joinpath(f"{name}.lua").read_text("utf-8")
            return clock.on_a_clock(by_position(mutants.applied(f"broker/lua/{name}.lua", text)))

        unacked._script = of_broker  # type: ignore[assignment]
        self.names_by_sha = {one.sha.encode(): one.name for one in found.values()}
        self.sha_of_record = found["record"].sha.encode()
        #: What tells a heartbeat.
        self.heartbeat = found["heartbeat"].sha.encode()
        bury = found["bury"]
        #: What tells a burial: EVALSHA's word, or how the text of EVAL begins.
        self.burials = (bury.sha.encode(), bury.text[:60].encode())
        self._texts = [Lock.LUA_RELEASE_SCRIPT, *(one.text for one in found.values())]
        for path in folder.iterdir():
            name = path.name.removesuffix(".lua")
            text = unacked._script(name)
            self._texts.append(text)
            self.names_by_sha[hashlib.sha1(text.encode()).hexdigest().encode()] = f"room:{name}"
        taking = attempts.taking_script(unacked._script("take"))
        self._texts.append(taking.text)
        self.names_by_sha[taking.sha.encode()] = taking.name
        together = transitions.together

        def named(first: Script, second: Script) -> Script:
            both = together(first, second)
            self.names_by_sha[both.sha.encode()] = f"{first.name} {second.name}"
            return both

        transitions.together = named  # type: ignore[attr-defined]

    def longest_kept_ms(self) -> float:
        """For how long the object that is kept longest is still kept."""
        left = [self.client.pttl(key) for key in self.client.keys("*:lock:*")]
        return float(max([0, *left]) / clock.STRETCH)

    def script(self, text: str) -> str:
        """Let the server learn a script of the driver's own, and return its digest."""
        self._own_texts.append(text)
        self.ask("SCRIPT", "LOAD", text)
        return hashlib.sha1(text.encode()).hexdigest()

    def empty(self) -> None:
        """Begin as a server that knows nothing but the scripts."""
        self.client.flushall()
        if self.is_taught:
            self.is_taught = False
            pipe = self.client.pipeline(transaction=False)
            pipe.script_flush()
            for text in (*self._own_texts, *self._texts):
                pipe.script_load(text)
            pipe.execute()

    def forget(self, app: Any) -> None:
        """Let nothing of one world be there in the next."""
        reliable_of(app).close()
        app.backend.client.connection_pool.disconnect()
        pools.reset()
        for name in [one for one in app.amqp.queues if one.endswith(tasks.OWN)]:
            del app.amqp.queues[name]
        app._pool = None
        app.amqp._producer_pool = None
        # What channels would do at the end of a process: each is kept for that.
        multiprocessing.util._finalizer_registry.clear()  # type: ignore[attr-defined]

    def flush_scripts(self) -> None:
        """Let the server forget the scripts."""
        self.client.script_flush()
        self.is_taught = True
        for text in self._own_texts:
            self.ask("SCRIPT", "LOAD", text)

    def cut_all(self) -> None:
        """Close every connection but the driver's own."""
        for row in self.client.client_list():
            if row["id"] not in self._own_ids:
                self.client.client_kill_filter(_id=row["id"])
        self.client.ping()

    def snapshot(self) -> Snapshot:
        """Return all that the server holds."""
        found: Snapshot = {}
        for db, client in enumerate(self.brokers.values()):
            keys = sorted(client.keys("*"))
            pipe = client.pipeline(transaction=False)
            for key in keys:
                pipe.pttl(key)
                pipe.dump(key)
            rows = pipe.execute()
            found[db] = {
                key: (max(ttl, 0), data)
                for key, ttl, data in zip(keys, rows[::2], rows[1::2], strict=True)
            }
        return found

    def restore(self, snapshot: Snapshot) -> None:
        """Let the server hold nothing but what it held then."""
        self.client.flushall()
        for db, client in enumerate(self.brokers.values()):
            pipe = client.pipeline(transaction=False)
            for key, (ttl, data) in snapshot.get(db, {}).items():
                if not key.startswith(b"driver:"):
                    pipe.restore(key, ttl, data)
            pipe.execute()


def _uuids() -> Any:
    import uuid

    return uuid.uuid4()


kombu_uuid.__defaults__ = (_uuids,)
