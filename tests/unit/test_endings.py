from __future__ import annotations

from celery_reliable.exceptions import one_line


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_an_exception_is_one_line():
    assert one_line(ValueError("two\n  lines")) == "ValueError: two lines"


def test_its_length_is_bounded():
    assert len(one_line(ValueError("x" * 1000))) == 500


def test_an_exception_that_cannot_say_itself_has_its_name():
    assert one_line(Unsayable()) == "Unsayable: <its str() raised RuntimeError>"
