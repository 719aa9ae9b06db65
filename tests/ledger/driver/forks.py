"""Lives worlds in forks of one process, which has loaded all that no fault is put into."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_ROOT = Path(__file__).parents[3]

#: What worlds import of others, and what takes long.
_LOADED = (
    "celery.app.builtins",
    "celery.backends.redis",
    "celery.worker.consumer",
    "celery.worker.worker",
    "kombu.transport.redis",
    "redis.asyncio",
    "redis.sentinel",
)


@dataclass(frozen=True)
class Done:
    """How a run has ended, and what it has printed."""

    returncode: int
    printed: str


class Forks:
    """The process, as tests see it: they have its package loaded, and ask it for each run."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def run(self, module: str, *words: object) -> Done:
        """Run a module of the driver with these words of its command line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        printed = Path(self._folder.name, "printed")
        asked = [module, [str(word) for word in words], str(printed)]
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        code = self._process.stdout.readline()
        return Done(int(code), printed.read_text())


def _lived(module: str, words: list[str], printed: str) -> int:
    """Return the exit code of a fork that has run a module."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 2
    try:
        with open(printed, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = importlib.import_module(module).main(words)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # What kombu does at the end it would do to a server that is gone.
        os._exit(code)


def main() -> None:
    """Answer each line: a module, its words, and the file for what it prints."""
    for name in _LOADED:
        importlib.import_module(name)
    assert "celery_reliable" not in sys.modules
    for line in sys.stdin:
        print(_lived(*json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
