"""What ``map``, ``starmap`` or a part of ``chunks`` carries is one task.

If that is lost, it begins again with its first call.
"""

from __future__ import annotations

from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.support.promises import promise


@promise("nothing-lost", "carried-as-one")
def test_each_call_of_a_map_is_made_though_its_worker_is_killed(soon: Project) -> None:
    """`map`, `starmap`, and the parts of `chunks`: each return one list, as in Celery."""
    soon.start_workers("one", "two", "three", "four", concurrency=1)
    numbers, doubled, double_of = range(6), [0, 2, 4, 6, 8, 10], soon.task("double_of")
    mapped = soon.task("double_one").map(numbers).apply_async()
    starmapped = double_of.starmap([(n, "starmap") for n in numbers]).apply_async()
    chunked = double_of.chunks([(n, "chunks") for n in numbers], 4).apply_async()
    assert mapped.get(timeout=90) == doubled
    assert starmapped.get(timeout=90) == doubled
    assert chunked.get(timeout=90) == [doubled[:4], doubled[4:]]
    for where in ("map", "starmap", "chunks"):
        made = [int(number) for number in soon.effects.client.lrange(f"calls:{where}", 0, -1)]
        # The one that was lost began again with its first call.
        assert sorted(made) == sorted([*numbers, 0, 1, 2, 3])
    wait_until_settled(soon.redis, 30)
