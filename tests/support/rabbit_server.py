"""A real RabbitMQ of one's own on the loopback interface, that may be stopped and killed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.redis_server import free_port
from tests.support.serving import STOP_SECONDS, Server, spawn
from tests.support.waiting import listens, wait_for

START_SECONDS = 90.0

#: Distributions put it where only an administrator's path leads.
_PLACES = ("/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/homebrew/sbin", "/usr/local/bin")


def rabbit_binary() -> Path | None:
    """The rabbitmq-server to run: `RABBITMQ_SERVER` when set, else an installed one, else None.

    Not Debian's wrapper, which starts it as another user and in another's directories.
    """
    if named := os.environ.get("RABBITMQ_SERVER"):
        return Path(named)
    for place in _PLACES:
        binary = Path(place, "rabbitmq-server")
        if binary.is_file():
            return binary
    return None


def why_no_rabbit() -> str:
    """Why no test can have a RabbitMQ here; empty when one can."""
    if rabbit_binary() is None:
        return "no rabbitmq-server is installed (RABBITMQ_SERVER may name one)"
    if shutil.which("epmd") is None:
        return "no epmd is installed, which RabbitMQ needs"
    return ""


class RabbitServer(Server):
    """One RabbitMQ node with its data in `directory`, and the epmd that it is registered at.

    Both are processes of ours, on ports of their own. `settings` are keys of the application
    `rabbit` with Erlang terms as text, such as ``{"consumer_timeout": "4000"}``.
    """

    log_name = "rabbit.log"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port, self._epmd_port, self._distribution_port = (free_port() for _ in range(3))
        self._node = f"tests{secrets.token_hex(4)}@localhost"
        self._epmd: subprocess.Popen[bytes] | None = None
        terms = ", ".join(f"{{{name}, {term}}}" for name, term in (settings or {}).items())
        (directory / "advanced.config").write_text(f"[{{rabbit, [{terms}]}}].\n")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            # A test needs no more, and a busy disk must not block it.
            "disk_free_limit.absolute = 1MB\n"
        )
        (directory / "enabled_plugins").write_text("[].\n")

    def url(self) -> str:
        """Where Celery finds it."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self) -> None:
        """Start the node, on the data it had before if any, and wait until it takes connections."""
        binary = rabbit_binary()
        assert binary is not None, why_no_rabbit()
        epmd = shutil.which("epmd")
        assert epmd is not None, why_no_rabbit()
        at = {"ERL_EPMD_PORT": str(self._epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1"}
        environ = {
            **at,
            "HOME": str(self.directory),
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "none.conf"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            # On one core, and idle where it waits: a third less of both cores while it starts.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} "
            "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }
        # In the foreground, so that it ends with us; else Erlang starts one that outlives the node.
        self._epmd = spawn([epmd], environ=at, log_path=self.log_path)
        wait_for(lambda: listens(self._epmd_port), START_SECONDS, "epmd to listen")
        self._process = spawn([str(binary)], environ=environ, log_path=self.log_path)
        self._wait_for_answer(START_SECONDS, f"RabbitMQ on port {self.port}")

    def stop(self) -> None:
        """SIGTERM, as a service manager does it: what is durable is there again after `start`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self._end(signal.SIGKILL)

    def _answers(self) -> bool:
        # The listener is opened last.
        return listens(self.port)

    def _end(self, number: signal.Signals) -> None:
        # The node first: it says good-bye to its epmd.
        for process in filter(None, (self._process, self._epmd)):
            if process.poll() is None:
                try:
                    os.killpg(process.pid, number)
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(STOP_SECONDS)
        self._process = self._epmd = None
