"""The doctor: what is wrong with a set-up, before it shows.

It looks at settings, tasks, what is installed, the servers and the workers, and judges.  A worker
that starts asks for a part of it, and refuses to start for the errors.  What happens just now is
`operations.check`'s.
"""

from __future__ import annotations

from celery_reliable.doctor.catalogue import CATALOGUE, Entry, entry_of
from celery_reliable.doctor.examination import Examination, examine
from celery_reliable.doctor.installation import check_hooks, check_pool
from celery_reliable.doctor.rows import UNSEEN_SECONDS, OpenRows, open_rows, set_rows_source
from celery_reliable.doctor.schedule import check_rows
from celery_reliable.doctor.servers import check_broker, check_ledger, check_results
from celery_reliable.doctor.setups import setup_to_tell

__all__ = [
    "CATALOGUE",
    "UNSEEN_SECONDS",
    "Entry",
    "Examination",
    "OpenRows",
    "check_broker",
    "check_hooks",
    "check_ledger",
    "check_pool",
    "check_results",
    "check_rows",
    "entry_of",
    "examine",
    "open_rows",
    "set_rows_source",
    "setup_to_tell",
]
