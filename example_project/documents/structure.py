"""How a text is built: its headings and paragraphs, and what a reader may stumble over."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from documents.readability import sentences, words

LONG_SENTENCE_WORDS = 30
LONG_PARAGRAPH_WORDS = 120

_MARKED_HEADING = re.compile(r"^(#{1,6})\s+(\S.*?)\s*#*$")
_UNDERLINE = re.compile(r"^(=+|-+)\s*$")


@dataclass(frozen=True)
class Block:
    """A heading (level 1 and up) or a paragraph (level 0), with the line it begins on."""

    line: int
    level: int
    text: str


@dataclass(frozen=True)
class Finding:
    """Something an editor should look at."""

    line: int
    kind: str
    message: str


def blocks(text: str) -> list[Block]:
    """Split a text into headings and paragraphs.

    Headings are written ``# like this``, or with a line of ``=`` or ``-`` below them.
    """
    found: list[Block] = []
    paragraph: list[str] = []
    begin = 1

    def close() -> None:
        if paragraph:
            found.append(Block(begin, 0, " ".join(paragraph)))
            paragraph.clear()

    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        marked = _MARKED_HEADING.match(line)
        underline = _UNDERLINE.match(line)
        if marked:
            close()
            found.append(Block(number, len(marked[1]), marked[2]))
        elif underline and len(paragraph) == 1 and len(line) > 2:
            found.append(Block(begin, 1 if line[0] == "=" else 2, paragraph.pop()))
        elif not line:
            close()
        else:
            if not paragraph:
                begin = number
            paragraph.append(line)
    close()
    return found


def prose(text: str) -> str:
    """Return the paragraphs of a text without its headings, which are no sentences."""
    return "\n\n".join(part.text for part in blocks(text) if not part.level)


def _heading_findings(parts: list[Block]) -> list[Finding]:
    headings = [part for part in parts if part.level]
    if not headings:
        return [Finding(1, "no heading", "the text has no heading")]
    found = []
    level = 0
    for heading in headings:
        if heading.level > level + 1 and level:
            found.append(
                Finding(
                    heading.line,
                    "skipped level",
                    f"{heading.text!r} is on level {heading.level}, right below level {level}",
                )
            )
        level = heading.level
    following: list[Block | None] = [*parts[1:], None]
    for part, after in zip(parts, following, strict=True):
        if part.level and (after is None or 0 < after.level <= part.level):
            found.append(Finding(part.line, "empty section", f"nothing stands under {part.text!r}"))
    return found


def _paragraph_findings(part: Block) -> list[Finding]:
    found = []
    n_words = len(words(part.text))
    if n_words > LONG_PARAGRAPH_WORDS:
        found.append(Finding(part.line, "long paragraph", f"{n_words} words in one paragraph"))
    for sentence in sentences(part.text):
        length = len(words(sentence))
        if length > LONG_SENTENCE_WORDS:
            start = " ".join(sentence.split()[:6])
            found.append(Finding(part.line, "long sentence", f"{length} words: {start} ..."))
    return found


def structure(text: str) -> dict[str, Any]:
    """Describe a text: counts, headings and findings, ready to be stored as JSON.

    Returns:
        ``n_paragraphs``, ``headings`` (line, level, text) and ``findings`` (line, kind, message),
        both in the order of the text.
    """
    parts = blocks(text)
    findings = _heading_findings(parts)
    for part in parts:
        if not part.level:
            findings.extend(_paragraph_findings(part))
    return {
        "n_paragraphs": sum(1 for part in parts if not part.level),
        "headings": [asdict(part) for part in parts if part.level],
        "findings": [asdict(one) for one in sorted(findings, key=lambda one: one.line)],
    }
