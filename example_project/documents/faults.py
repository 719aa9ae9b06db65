"""The demo's fault injection: a document that kills the process that reads it.

It stands for what real documents do now and then: a file that makes a parser's C code crash, or
that takes so much memory that the kernel kills the process. Python cannot catch either.
"""

from __future__ import annotations

import os
import signal

from django.conf import settings

POISON = "[poison: kill the process that reads this]"


def is_poison(text: str) -> bool:
    """Say whether this text kills its reader: it holds the marker, and the settings allow it."""
    return settings.DOCUMENT_FAULTS_ALLOWED and POISON in text


def kill_this_process() -> None:
    """End this process as the kernel's out-of-memory killer does: at once, with no clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)
