"""The reference pages say what the code says."""

from __future__ import annotations

from dataclasses import fields

import pytest

from celery_reliable import ReliableConfig, ReliableTask
from celery_reliable.options.definition import OPTIONS
from tests.support.reference import FOLDER, PAGES, comments


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text("utf-8")

    assert written == PAGES[name](), "write it: python -m tests.support.reference"


def test_every_setting_and_option_says_what_it_is() -> None:
    assert {one.name for one in fields(ReliableConfig)} == comments(ReliableConfig).keys()
    assert OPTIONS.keys() <= comments(ReliableTask).keys()
