"""Every finding about a set-up: its code, and what happens to who ignores it.

A code stays.  Its letter is the worst that the finding can be.  ``docs/doctor.rst`` has a section
for each code, by this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from celery_reliable.model import Finding

__all__ = ["CATALOGUE", "Entry", "entry_of"]

_PREFIX: Final = "celery_reliable."


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a finding before anybody looks.

    Attributes:
        code: such as "E005".
        name: the finding's id, without the package's name.
        ignored: what happens to who ignores it.
    """

    code: str
    name: str
    ignored: str

    @property
    def id(self) -> str:
        """The code, as Django's checks have it."""
        return _PREFIX + self.code


CATALOGUE: Final = (
    Entry("E001", "settings_wrong", "No worker starts, and what publishes a task raises."),
    Entry("E002", "no_redis", "No worker starts, and what publishes a task raises."),
    Entry("E003", "cache_unusable", "No worker starts, and what publishes a task raises."),
    Entry("E004", "api_settings_wrong", "Each request to the API is answered with an error."),
    Entry(
        "E005",
        "redis_evicts",
        "When the server's memory is full it deletes records: these tasks are lost, and nobody is "
        "told. No worker starts.",
    ),
    Entry("E006", "redis_too_old", "No worker starts: commands that scripts run are not there."),
    Entry("E007", "redis_cluster", "No worker starts, and what publishes a task raises."),
    Entry("E008", "redis_is_replica", "No worker starts, and what publishes a task raises."),
    Entry(
        "E009",
        "redis_forbids",
        "No worker starts. Where workers run already, what needs the right fails or waits until "
        "it is given back.",
    ),
    Entry(
        "E010",
        "name_missing",
        "A worker does not start; or, where it is a warning, what the message names is not "
        "protected.",
    ),
    Entry("E011", "pool_does_not_fork", "No worker with a prefork pool starts."),
    Entry("E012", "redis_unfit", "No worker starts: a task could not be recorded and settled."),
    Entry(
        "E013",
        "version_unsupported",
        "Too old: faults that a later release mended break promises. Too new: nobody has tried it.",
    ),
    Entry(
        "E014",
        "namespace_too_new",
        "No worker starts, and what publishes a task raises: a later release writes there.",
    ),
    Entry("E015", "pool_not_supported", "No worker with this pool starts."),
    Entry(
        "W001",
        "cache_can_be_cleared",
        "cache.clear(), which tests and deployments like to call, deletes every task there is.",
    ),
    Entry("W002", "unprotected", "Nothing is promised: a killed process takes its tasks along."),
    Entry("W003", "settings_unread", "The defaults are in force, whatever was written there."),
    Entry("W004", "not_looked_at", "Whether it is well is not known; this is no all-clear."),
    Entry(
        "W005",
        "redis_would_evict",
        "Nothing, until somebody sets maxmemory. Then tasks are lost, and no worker starts.",
    ),
    Entry(
        "W006",
        "redis_hides_info",
        "After a restart of the server that lost its last writes, tasks that had ended may run "
        "again.",
    ),
    Entry("W007", "redis_durability_unknown", "A power cut may cost every task."),
    Entry("W008", "redis_not_durable", "A restart of the server, however short, loses every task."),
    Entry(
        "W009",
        "redis_snapshots_only",
        "A power cut, or a kill of the server, loses what was published since the last snapshot.",
    ),
    Entry(
        "W010",
        "redis_loses_seconds",
        "A power cut loses what was published in the last moment. A kill of the server alone "
        "loses nothing.",
    ),
    Entry(
        "W011",
        "failover_loses",
        "Each failover, also a planned one, loses what was published in some ten seconds.",
    ),
    Entry("W012", "options_without_base", "The options do nothing: the tasks are as Celery's."),
    Entry(
        "W013",
        "plain_task_in_circles",
        "One message that kills its process kills process after process, for ever.",
    ),
    Entry(
        "W014",
        "plain_task_outlives_visibility",
        "The task runs twice at once, and again each time that the timeout is over.",
    ),
    Entry(
        "W015",
        "visibility_timeout_short",
        "Workers without the package are delivered a task with an ETA again and again, until one "
        "of the copies has run: it runs many times.",
    ),
    Entry(
        "W016",
        "namespace_shared",
        "Each app looks after the other's tasks by its own settings: limits of losses, times, and "
        "result backend.",
    ),
    Entry(
        "W017",
        "prefetch_holds_work",
        "Tasks wait for minutes behind a long one, in a worker that is busy, while others have "
        "nothing to do; and a worker that dies gives all of them back at once.",
    ),
    Entry(
        "W018",
        "results_expire_early",
        "Whoever waits for the result waits in vain, a chord or a group of such tasks does not "
        "end, and what a worker without the package ran is run again, as nobody sees that it "
        "has ended.",
    ),
    Entry(
        "W019",
        "results_never_expire",
        "Results fill the server. When it is full nothing can be published, and attempts wait to "
        "settle.",
    ),
    Entry(
        "W020",
        "time_limit_before_time_to_run",
        "Celery's limit kills the attempt, and the task has failed: it is not run again, touch() "
        "does not help, and the time to run never counts.",
    ),
    Entry(
        "W021",
        "pool_cannot_stop",
        "What hangs goes on for ever, and keeps its slot. Its successor and whoever needs its "
        "object wait for it.",
    ),
    Entry(
        "W022",
        "grace_too_short",
        "Each deployment kills what still runs. It runs again, but a task that was alone in its "
        "worker is charged with a loss, and after MAX_LOSSES deployments it is a dead letter.",
    ),
    Entry(
        "W023",
        "worker_of_another_version",
        "Nothing is lost, but what only the newer release does is not done for what these workers "
        "run, for as long as they do.",
    ),
    Entry(
        "W024",
        "clock_differs",
        "Tasks with an ETA begin too early or too late by as much, times in logs and events do not "
        "fit, and tasks with an expiry are dropped too early or too late.",
    ),
    Entry(
        "W025",
        "no_witness",
        "A killed worker's tasks come back when its lease has run out, and not within seconds.",
    ),
    Entry("W026", "sweep_scheduled_twice", "Messages that do nothing; nothing breaks."),
    Entry(
        "W027",
        "sweep_unscheduled",
        "While each worker's loop is busy with a computation nobody sweeps: what was lost, and "
        "what is parked, waits.",
    ),
    Entry(
        "W028",
        "sweep_misnamed",
        "Beat sends a task that nobody knows: each becomes a dead letter.",
    ),
    Entry("W029", "extra_missing", "What the message names does not work."),
    Entry(
        "W030",
        "plain_tasks",
        "These are as safe as with Celery alone: a killed worker's are lost, or come back after "
        "the visibility timeout.",
    ),
    Entry(
        "W031",
        "rows_unscheduled",
        "A row whose publisher is killed between its commit and its publication waits for ever, "
        "and one whose task is dead says for ever that it runs.",
    ),
    Entry(
        "W033",
        "rows_unseen",
        "What was committed and never published waits for ever, and rows say that they wait or "
        "run whatever became of their tasks.",
    ),
)  # fmt: skip

_BY_ID: Final = {_PREFIX + entry.name: entry for entry in CATALOGUE}


def entry_of(finding: Finding) -> Entry:
    """Return what the catalogue says of a finding.  Raises KeyError for one of another kind."""
    return _BY_ID[finding.id]
