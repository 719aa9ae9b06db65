"""`celery -A … reliable …` in a Django project whose ledger is on the Redis of a cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from celery import Celery
from django.test.utils import override_settings

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.caches import connector_of
from celery_reliable.model import Reason
from tests.integration.commands import Ran, run_celery

SETTINGS = """
SECRET_KEY = "only for tests"
INSTALLED_APPS = ["celery_reliable.contrib.django"]
CACHES = {{
    "ledger": {{
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "redis://{address}/0",
        "KEY_PREFIX": "shop",
    }}
}}
CELERY_BROKER_URL = "amqp://127.0.0.1:1"
CELERY_RELIABLE = {{"CACHE": {alias!r}, "NAMESPACE": "{namespace}"}}
"""
APP = """
from celery import Celery

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""


def run(folder: Path, address: str, namespace: str, alias: str) -> Ran:
    (folder / "shop_settings.py").write_text(
        SETTINGS.format(address=address, namespace=namespace, alias=alias)
    )
    (folder / "shop.py").write_text(APP)
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "shop_settings"}
    arguments = ("reliable", "dead-letters", "list", "--json")
    return run_celery(*arguments, app="shop", environ=environ, folder=folder)


def test_the_command_finds_the_ledger_of_the_cache(
    tmp_path: Path, redis_address: str, namespace: str, use_caches: Callable[..., None]
) -> None:
    location = f"redis://{redis_address}/0"
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "KEY_PREFIX": "shop"}
    use_caches({"ledger": cache})
    here = Celery("here", broker="amqp://127.0.0.1:1", set_as_current=False)
    with override_settings(CELERY_RELIABLE={"CACHE": "ledger", "NAMESPACE": namespace}):
        ledger = reliable_of(here).ledger
    ledger.bury_message(
        "one", Reason.FAILED, exception="", traceback="", message="{}", name="shop.bill"
    )

    ran = run(tmp_path, redis_address, namespace, "ledger")

    assert ran.code == 0, ran.err
    assert [one["task_id"] for one in ran.json["items"]] == ["one"]
    assert redis_address in connector_of("ledger").shown
    ledger.close()


def test_a_cache_that_is_not_there_is_one_sentence(
    tmp_path: Path, redis_address: str, namespace: str
) -> None:
    ran = run(tmp_path, redis_address, namespace, "nowhere")

    assert (ran.code, ran.out) == (1, "")
    assert "CACHE in CELERY_RELIABLE is 'nowhere'" in ran.err
    assert "Traceback" not in ran.err
