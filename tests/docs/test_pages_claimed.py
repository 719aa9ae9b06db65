"""Each block of README and docs that can be run is run by a test, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from docutils import nodes

from tests.docs.blocks import ROOT, Page, claims, doctree, page_path, pages

CLAIMED = claims(ROOT / "tests")
ALL = pages()


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
