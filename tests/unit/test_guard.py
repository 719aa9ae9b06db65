from __future__ import annotations

import pytest

from celery_reliable.exceptions import ConfigurationError, raise_for
from celery_reliable.model import Finding
from celery_reliable.settings.checks import (
    AppFacts,
    ServerFacts,
    check_app,
    check_neighbours,
    check_server,
)
from celery_reliable.settings.durability import check_durability
from tests.support.promises import promise

GOOD_SERVER = ServerFacts(
    version="6.2.14",
    role="master",
    maxmemory=1 << 30,
    maxmemory_policy="noeviction",
    appendonly=True,
    appendfsync="always",
    save="",
    is_cluster=False,
    replicas=0,
    min_replicas=0,
)
GOOD_APP = AppFacts(broker_transport="redis")


def names(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(item.level, item.id.removeprefix("celery_reliable.")) for item in findings]


def test_a_good_server_and_a_good_app_have_no_findings():
    assert check_server(GOOD_SERVER) == []
    assert check_durability(GOOD_SERVER) == []
    assert check_app(GOOD_APP) == []


def test_a_broker_in_one_process_is_for_tests():
    assert names(check_app(AppFacts(broker_transport="memory"))) == [("warning", "unprotected")]
    # With a ledger it is as any other.
    assert check_app(AppFacts(broker_transport="memory", redis_url_given=True)) == []
    # These are there for others too, and after a restart.
    for transport in ("filesystem", "sqla", "amqp"):
        assert names(check_app(AppFacts(broker_transport=transport))) == [("error", "no_redis")]


def test_options_of_a_task_without_the_base_are_told():
    facts = AppFacts(broker_transport="redis", plain_options={"shop.bill": ["object_id"]})

    (finding,) = check_app(facts)

    assert finding.level == "warning"
    assert "shop.bill (object_id)" in finding.message
    assert "base=ReliableTask" in finding.hint


def test_nothing_is_found_about_what_could_not_be_read():
    assert check_server(ServerFacts()) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, [("error", "redis_evicts")]),
        ({"maxmemory_policy": "volatile-ttl"}, [("error", "redis_evicts")]),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": 0}, [("warning", "redis_would_evict")]),
        ({"maxmemory": 0}, []),
        ({"is_cluster": True}, [("error", "redis_cluster")]),
        ({"role": "slave"}, [("error", "redis_is_replica")]),
        ({"version": "6.0.16"}, [("error", "redis_too_old")]),
        ({"version": "5.0"}, [("error", "redis_too_old")]),
        ({"version": "6.2.0"}, []),
        ({"version": "10.0.1"}, []),
        ({"version": "unstable"}, []),
    ],
)
def test_what_is_found_on_a_server(changed, found):
    assert names(check_server(replaced(GOOD_SERVER, changed))) == found


@promise("as-durable-as-redis", "failover-loses")
@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"appendonly": False}, ("warning", "redis_not_durable", "every task is gone")),
        (
            {"appendonly": False, "save": '""'},
            ("warning", "redis_not_durable", "every task is gone"),
        ),
        (
            {"appendonly": False, "save": "3600 1 300 100 60 10000"},
            ("warning", "redis_snapshots_only", "publications of up to 3600 seconds"),
        ),
        (
            {"appendonly": False, "save": "60 10000"},
            ("warning", "redis_snapshots_only", "fewer than 10000 changes"),
        ),
        (
            {"appendonly": False, "save": None},
            ("warning", "redis_durability_unknown", "not known"),
        ),
        # Who does not tell of its file is not taken for one without.
        (
            {"appendonly": None, "save": ""},
            ("warning", "redis_durability_unknown", "not known"),
        ),
        (
            {"appendonly": None, "save": None},
            ("warning", "redis_durability_unknown", "not known"),
        ),
        ({"appendfsync": "everysec"}, ("info", "redis_loses_seconds", "two at the most")),
        ({"appendfsync": "no"}, ("warning", "redis_loses_seconds", "half a minute")),
        ({"appendfsync": None}, ("info", "redis_loses_seconds", "nobody knows")),
        ({"replicas": 1}, ("warning", "failover_loses", "ten seconds of publications")),
        ({"has_sentinel": True}, ("warning", "failover_loses", "ten seconds of publications")),
    ],
)
def test_what_a_power_cut_or_a_failover_costs(changed, found):
    (finding,) = check_durability(replaced(GOOD_SERVER, changed))

    level, name, words = found
    assert names([finding]) == [(level, name)]
    assert words in finding.message
    assert finding.hint


@pytest.mark.parametrize(
    "changed",
    [{"replicas": 2, "min_replicas": 1}, {"has_sentinel": True, "min_replicas": None}],
)
def test_a_failover_that_costs_nothing_is_not_told_of(changed):
    assert check_durability(replaced(GOOD_SERVER, changed)) == []


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (AppFacts(broker_transport="amqp"), [("error", "no_redis")]),
        (AppFacts(broker_transport="amqp", redis_url_given=True), []),
        (
            AppFacts(broker_transport="amqp", cache="tasks"),
            [("warning", "cache_can_be_cleared")],
        ),
        (AppFacts(broker_transport="sentinel"), []),
        (
            AppFacts(broker_transport="redis", plain_requeued_when_lost=("a.b",)),
            [("warning", "plain_task_in_circles")],
        ),
        (AppFacts(broker_transport="redis", plain_time_limits={"a.b": 3600}), []),
        (
            AppFacts(broker_transport="redis", plain_time_limits={"a.b": 3601}),
            [("warning", "plain_task_outlives_visibility")],
        ),
        (
            AppFacts(
                broker_transport="redis",
                plain_time_limits={"a.b": 3601},
                visibility_timeout_seconds=7200,
            ),
            [],
        ),
        (
            AppFacts(
                broker_transport="amqp", redis_url_given=True, plain_time_limits={"a.b": 99999}
            ),
            [],
        ),
    ],
)
def test_what_is_found_in_an_app(facts, found):
    assert names(check_app(facts)) == found


def test_a_finding_names_names_values_and_the_way_out():
    (eviction,) = check_server(replaced(GOOD_SERVER, {"maxmemory_policy": "allkeys-lru"}))
    (outlives,) = check_app(
        AppFacts(
            broker_transport="redis",
            plain_time_limits={"a.slow": 900, "a.slower": 1200, "a.fast": 5},
            visibility_timeout_seconds=60,
        )
    )

    assert "1073741824" in eviction.message
    assert "allkeys-lru" in eviction.message
    assert "noeviction" in eviction.hint
    assert "visibility_timeout is 60 seconds" in outlives.message
    assert "a.slow, a.slower" in outlives.message
    assert "a.fast" not in outlives.message
    assert "more than 1200" in outlives.hint


def test_a_long_list_of_tasks_is_cut():
    facts = AppFacts(
        broker_transport="redis", plain_requeued_when_lost=tuple(f"a.t{n}" for n in range(9))
    )

    assert "a.t0, a.t1, a.t2, a.t3, a.t4 and 4 more" in check_app(facts)[0].message


def test_warnings_are_returned():
    warning = Finding("x", "warning", "This.", "Do that.")

    assert raise_for([warning]) == [warning]


def test_all_errors_are_raised_in_one_a_paragraph_each():
    findings = [
        Finding("x", "error", "A is wrong.", "Do B."),
        Finding("y", "warning", "C is odd.", "Do D."),
        Finding("z", "error", "E is wrong.", "Do F."),
    ]

    with pytest.raises(ConfigurationError) as caught:
        raise_for(iter(findings))

    assert str(caught.value) == "A is wrong. Do B.\n\nE is wrong. Do F."
    assert caught.value.problems == ("A is wrong. Do B.", "E is wrong. Do F.")


@pytest.mark.parametrize("as_given", [str, lambda value: value], ids=["text", "parsed"])
def test_facts_are_read_from_info(as_given):
    info = {
        "redis_version": "6.2.14",
        "role": "master",
        "maxmemory": as_given(1 << 30),
        "maxmemory_policy": "noeviction",
        "aof_enabled": as_given(1),
        "appendfsync": "always",
        "save": "",
        "cluster_enabled": as_given(0),
        "connected_slaves": as_given(0),
        "min-replicas-to-write": as_given(0),
    }

    assert ServerFacts.from_info(info) == GOOD_SERVER
    assert ServerFacts.from_info({**info, "aof_enabled": as_given(0)}).appendonly is False
    assert ServerFacts.from_info({}) == ServerFacts()
    # Where INFO is forbidden, CONFIG GET tells the same by other names.
    told = {"appendonly": "yes", "maxmemory": as_given(0), "maxmemory-policy": "allkeys-lru"}
    without = ServerFacts.from_info(told)
    assert without == ServerFacts(appendonly=True, maxmemory=0, maxmemory_policy="allkeys-lru")
    assert ServerFacts.from_info({"appendonly": "no"}).appendonly is False


def replaced(facts: ServerFacts, changed: dict[str, object]) -> ServerFacts:
    import dataclasses

    return dataclasses.replace(facts, **changed)  # type: ignore[arg-type]


@promise("one-namespace")
def test_another_app_in_the_namespace_is_named():
    own = ("shop", "redis://a:6379/0")
    others = [own, ("", ""), ("stock", "redis://b:6379/5"), ("shop", "redis://alias:6379/0")]

    same, other = check_neighbours(own, others, "reliable")

    assert names([same, other]) == [("info", "namespace_shared"), ("warning", "namespace_shared")]
    assert all(word in other.message for word in ("shop", "stock", "redis://b:6379/5"))
    assert "NAMESPACE" in other.hint
    assert check_neighbours(own, [own, ("", "")], "reliable") == []
