"""How long a task waits whose object another one holds."""

from __future__ import annotations

import pytest

from celery_reliable.attempt.conclusion import next_wait


def test_no_wait_is_shorter_than_the_one_before() -> None:
    told: object = None
    seconds = []
    for _ in range(12):
        told, wait = next_wait(told)
        seconds.append(wait)
    assert seconds == sorted(seconds)
    assert (seconds[0], seconds[-1]) == (1.0, 30.0)


@pytest.mark.parametrize("told", [-1, True, "5", 2.0, [1]], ids=repr)
def test_what_is_no_count_is_the_first_wait(told: object) -> None:
    assert next_wait(told) == (1, 1.0)


def test_a_count_that_is_made_up_waits_no_longer_than_the_longest() -> None:
    assert next_wait(10**30)[1] == 30.0
