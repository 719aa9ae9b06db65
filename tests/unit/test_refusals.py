"""What a Redis says that takes no writes: such an error passes, and others do not."""

from __future__ import annotations

import pytest
from redis import exceptions as errors

from celery_reliable.redis_io import refuses_writes

NOREPLICAS = "NOREPLICAS Not enough good replicas to write."


@pytest.mark.parametrize(
    "error",
    [
        errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        errors.ReadOnlyError("You can't write against a read only replica."),
        errors.ResponseError(NOREPLICAS),
        # As they read in a script before Redis 7, since then, and in a transaction.
        errors.ResponseError(
            f"Error running script (call to f_1): @user_script: 19: -{NOREPLICAS}"
        ),
        errors.ResponseError(f"{NOREPLICAS} script: 1, on @user_script:1."),
        errors.ResponseError(f"Command # 1 (SETEX a 1 ...) of pipeline caused error: {NOREPLICAS}"),
        errors.ResponseError("MISCONF Redis is configured to save RDB snapshots, but it cannot."),
    ],
)
def test_a_server_that_takes_no_writes(error: errors.RedisError) -> None:
    assert refuses_writes(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        errors.ResponseError("Command # 1 (SET NOREPLICAS x) of pipeline caused error: WRONGTYPE"),
        errors.NoPermissionError("this user has no permissions to run the 'setex' command"),
        ValueError(NOREPLICAS),
    ],
)
def test_what_will_not_pass(error: Exception) -> None:
    assert not refuses_writes(error)
