"""Broker, ledger and results on a Redis that speaks TLS, and asks its clients for a certificate."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import redis

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.operations import Desk
from celery_reliable.redis_io import Line
from tests.conftest import StartRedis
from tests.integration.conftest import Project, Start
from tests.support.effects import Effects
from tests.support.redis_server import SERVERS, RedisServer, free_port, why_not
from tests.support.waiting import wait_for


@dataclass(frozen=True)
class Party:
    """Who has a certificate."""

    certificate: Path
    key: Path


def party(folder: Path, name: str, by: Party | None = None) -> Party:
    """Somebody at 127.0.0.1 with a certificate of an authority; without one an authority."""
    own = Party(folder / f"{name}.pem", folder / f"{name}.key")
    words: list[object] = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", own.key, "-out", own.certificate]
    words += ["-CA", by.certificate, "-CAkey", by.key] if by else []
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    return own


@dataclass(frozen=True)
class Secured:
    """A Redis with a port for TLS, and what its clients need."""

    server: RedisServer
    port: int
    trusted: Party
    client: Party

    def url(self, **changes: Any) -> str:
        """Where it is, for Celery; all that is asked of TLS is in the URL."""
        given = {
            "ssl_cert_reqs": "required",
            "ssl_ca_certs": self.trusted.certificate,
            "ssl_certfile": self.client.certificate,
            "ssl_keyfile": self.client.key,
            **changes,
        }
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return f"rediss://127.0.0.1:{self.port}/0?{query}"


@pytest.fixture
def secured(start_redis: StartRedis, tmp_path: Path) -> Secured:
    if reason := why_not("Redis 7"):
        pytest.skip(reason)
    if shutil.which("openssl") is None:
        pytest.skip("no openssl is installed")
    trusted = party(tmp_path, "authority")
    own, client = (party(tmp_path, name, trusted) for name in ("server", "client"))
    port = free_port()
    server = start_redis(
        {
            "tls-port": str(port),
            "tls-cert-file": str(own.certificate),
            "tls-key-file": str(own.key),
            "tls-ca-cert-file": str(trusted.certificate),
            "tls-auth-clients": "yes",
        },
        binary=SERVERS["Redis 7"],
    )
    return Secured(server, port, trusted, client)


def test_what_a_killed_worker_ran_runs_again_over_tls(
    secured: Secured, project: Project, start_worker: Start, effects: Effects
) -> None:
    url = secured.url()
    over_tls = project.with_settings(broker_url=url, result_url=url)
    victim = start_worker("one", project=over_tls)
    running = over_tls.send("gate", "open")
    effects.run_of(running.id)
    start_worker("two", project=over_tls)
    with secured.server.client() as admin:
        asking = admin.client_list()
        # The test's own is not among them.
        ports = {
            one["laddr"].rpartition(":")[2] for one in asking if "client|list" not in one["cmd"]
        }
    assert ports == {str(secured.port)}

    victim.kill_group()
    wait_for(lambda: len(effects.runs(running.id)) == 2, 30, "it runs again")
    effects.open_gate("open")

    assert running.get(timeout=20) == "open"
    with Desk(over_tls.app) as desk:
        assert desk.status().workers_by_state["alive"] == 1


def test_the_same_connection_is_asked_until_the_server_closes_it(secured: Secured) -> None:
    pool = redis.ConnectionPool.from_url(secured.url())
    line = Line(pool)
    # What the server sends of its own when they have shaken hands is no end of the connection.
    ids = {line.ask(("CLIENT", "ID"))[0] for _ in range(5)}
    assert len(ids) == 1
    with secured.server.client() as admin:
        admin.client_kill_filter(_id=ids.pop())
        assert line.ask(("PING",)) == [b"PONG"]
    line.close()
    pool.disconnect()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda at, other: at.url(ssl_ca_certs=other.certificate), "certificate verify failed"),
        (lambda at, other: at.url(ssl_certfile=None, ssl_keyfile=None), "did not answer"),
        (lambda at, other: f"redis://127.0.0.1:{at.port}/0", "did not answer"),
    ],
    ids=["another authority", "no certificate", "no TLS"],
)
def test_who_is_not_trusted_is_not_talked_to(
    wrong: Callable[[Secured, Party], str],
    says: str,
    secured: Secured,
    project: Project,
    tmp_path: Path,
) -> None:
    url = wrong(secured, party(tmp_path, "another"))
    refused = project.with_settings(broker_url=url)

    with (
        Desk(refused.app, patience_seconds=1) as desk,
        pytest.raises(LedgerUnavailable, match=says),
    ):
        desk.workers.all()
