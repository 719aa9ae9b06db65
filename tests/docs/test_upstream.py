"""Each report that is ready for upstream shows its fault on the installed release; one that does
not is mended there, and has to say so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import metadata

import pytest

from tests.docs.blocks import Page
from tests.support.redis_server import RedisServer, redis_binary

PAGES = (
    "upstream/celery-migrate-expiration.rst",
    "upstream/celery-put-back.rst",
    "upstream/kombu-closed-twice.rst",
    "upstream/kombu-delivery-tags.rst",
    "upstream/kombu-list-elements.rst",
    "upstream/kombu-lost-bindings.rst",
    "upstream/kombu-visibility-timeout.rst",
)
REPORTS = [Page(name) for name in PAGES]
SCRIPTS = [report.of("python")[0] for report in REPORTS]


def test_the_scripts_show_the_faults(redis_server: RedisServer) -> None:
    """All at once: mostly they wait, each in a database of its own."""
    environ = {**os.environ, "REDIS_SERVER": redis_binary()}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script.text],
            env={**environ, "REDIS_URL": redis_server.url(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for number, script in enumerate(SCRIPTS, start=1)
    ]
    try:
        said = [one.communicate(timeout=60)[0] for one in running]
    finally:
        for one in running:
            # One that did not end may have left a server or a worker.
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)

    for report, words in zip(REPORTS, said, strict=True):
        assert "FAULT" in words or "MENDED" in words, (report.name, words)
        if "FAULT" not in words:
            releases = ", ".join(
                f"{one} {metadata.version(one)}" for one in ("celery", "kombu", "billiard")
            )
            pytest.fail(
                f"MENDED UPSTREAM: {report.name} does not show its fault with {releases}. Say "
                "there since when, and see what in celery_reliable.compat and .broker can go."
            )


def test_each_block_is_run() -> None:
    assert [str(one) for page in REPORTS for one in page.left()] == []
