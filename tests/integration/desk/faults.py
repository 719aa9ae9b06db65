"""What is found of a fault, by whoever asks: an operator, and Prometheus."""

from __future__ import annotations

from celery_reliable.findings import Finding
from celery_reliable.operations import Desk, registry_of
from tests.support.waiting import wait_for

#: Each has to be seen so soon.
SEEN_SECONDS = 30


def found(desk: Desk, **limits: float) -> set[str]:
    """The names of what is wrong; not of what is only worth knowing."""
    findings = desk.status(**limits).findings
    assert all(one.message and one.hint for one in findings)
    return {one.name for one in findings if one.severity != "info"}


def finding(desk: Desk, name: str, **limits: float) -> Finding | None:
    """What is found by this name."""
    return next((one for one in desk.status(**limits).findings if one.name == name), None)


def wait_for_finding(desk: Desk, name: str, **limits: float) -> Finding:
    """Wait until it is found, and in the metrics."""
    told = wait_for(lambda: finding(desk, name, **limits), SEEN_SECONDS, name)
    wait_for(lambda: name in scraped(desk, **limits), SEEN_SECONDS, f"{name} in the metrics")
    assert told is not None
    return told


def scraped(desk: Desk, **limits: float) -> set[str]:
    """The same, as Prometheus is told."""
    families = registry_of(desk.app, **limits).collect()
    (family,) = (one for one in families if one.name == "reliable_finding")
    return {sample.labels["name"] for sample in family.samples if sample.value}
