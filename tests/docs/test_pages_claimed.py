"""Each block of README and docs that can be run is run by a test, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from docutils import nodes

from tests.docs.blocks import DOCS, ROOT, Page, claims, doctree, page_path, pages

CLAIMED = claims(ROOT / "tests")
ALL = pages()

PAGE = """\
Page
====

A word ``docs/gone.rst``, `here <gone.rst>`_, `there <http://example.com>`_::

    plain

Section
-------

.. code-block:: python
   :caption: proj/tasks.py

   one = 1

.. versionadded:: 1.0

   .. code-block:: console

      $ celery -A proj \\
          reliable status
      All is well.
      $ # no command
      $ true

.. toctree::

   gone

.. image:: gone.png
"""


@pytest.mark.parametrize("name", ALL)
def test_a_page_is_run_by_a_test_and_leads_nowhere_in_vain(name: str) -> None:
    """All in one, as reading a page takes longer than looking at it."""
    blocks = Page(name).blocks

    assert [str(one) for one in blocks if not one.language] == [], "which language is it?"
    runnable = [str(one) for one in blocks if one.is_runnable]
    assert not runnable or name in CLAIMED, (
        f"no test claims the blocks of {name}: write tests/docs/test_<page>.py, which takes them "
        f"from the page, with PAGES = ({name!r},)"
    )
    assert runnable or name not in CLAIMED, f"nothing to run, but {CLAIMED[name]} claim it"
    assert broken(page_path(name)) == []


def test_who_claims_a_page_means_one_that_there_is() -> None:
    assert CLAIMED.keys() <= set(ALL)


def test_blocks_are_read_as_docutils_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "page.rst"
    path.write_text(PAGE)
    page = Page(str(path))

    plain, python, console = page.blocks

    assert (plain.language, plain.is_runnable) == ("", False)
    assert (python.text, python.caption, python.section) == (
        "one = 1\n",
        "proj/tasks.py",
        ("Page", "Section"),
    )
    assert PAGE.splitlines()[python.line - 1].strip() == "one = 1"
    assert console.commands == ["celery -A proj reliable status", "true"]
    assert len(page.left()) == 2
    assert page.block("one = 1") == python
    assert page.commands("Section") == console.commands
    assert page.left() == []


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    path = tmp_path / "page.rst"
    path.write_text(PAGE)

    assert broken(path) == ["gone.rst", "http://example.com", "gone.png", "docs/gone.rst"]


def broken(path: Path) -> list[str]:
    """The links and pictures of a page that lead nowhere, and the files that it names in vain."""
    tree = doctree(path)
    links = [node["refuri"] for node in tree.findall(nodes.reference) if "refuri" in node]
    links += [node["uri"] for node in tree.findall(nodes.image)]
    named = re.findall(r"``(docs/[\w./-]*\w)``", path.read_text("utf-8"))
    return [
        *(link for link in links if not _leads_somewhere(link, path.parent)),
        *(name for name in named if not (ROOT / name).exists()),
    ]


def _leads_somewhere(link: str, folder: Path) -> bool:
    parts = urlsplit(link)
    if parts.scheme:
        return parts.scheme in ("https", "mailto") and bool(parts.netloc or parts.path)
    return not parts.path or (folder / parts.path).exists()


def test_there_are_pages_below_docs() -> None:
    assert DOCS / "index.rst" in map(page_path, ALL)
