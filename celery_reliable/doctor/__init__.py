"""The doctor: collects the facts of a set-up, for the table of findings.

It looks at settings, tasks, what is installed, the servers, the rows and the living workers.  A
worker that starts asks for a part of it, and refuses to start for the errors.
"""

from __future__ import annotations

from celery_reliable.doctor.examination import (
    Examination,
    ask_broker,
    ask_hooks,
    ask_ledger,
    ask_results,
    examine,
)
from celery_reliable.doctor.setups import setup_of, setup_to_tell

__all__ = [
    "Examination",
    "ask_broker",
    "ask_hooks",
    "ask_ledger",
    "ask_results",
    "examine",
    "setup_of",
    "setup_to_tell",
]
