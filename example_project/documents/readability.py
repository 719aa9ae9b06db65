"""How hard a text is to read: the Flesch reading ease, for English."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r"[A-Za-z]+(?:['\u2019][A-Za-z]+)*")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])[\"'\u201d\u2019)]*\s+(?=[\"'\u201c\u2018(]*[A-Z0-9])|\n\s*\n"
)
_VOWELS = re.compile(r"[aeiouy]+")

# Lower bound of the score and its usual name, from Flesch's own table.
_GRADES = (
    (90.0, "very easy"),
    (80.0, "easy"),
    (70.0, "fairly easy"),
    (60.0, "plain English"),
    (50.0, "fairly difficult"),
    (30.0, "difficult"),
)


@dataclass(frozen=True)
class Readability:
    """The score of one text and the counts it was made from."""

    score: float
    grade: str
    n_words: int
    n_sentences: int


def words(text: str) -> list[str]:
    """Return the words of a text, in order; numbers and signs are not words."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Split a text into sentences; an empty line ends a sentence too.

    An abbreviation with a full stop before a capital ("Dr. Watson") counts as an end.
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if words(part)]


def syllables(word: str) -> int:
    """Estimate the syllables of an English word by its groups of vowels; at least one."""
    letters = word.lower().replace("\u2019", "'").removesuffix("'s")
    count = len(_VOWELS.findall(letters))
    silent_e = letters.endswith("e") and not letters.endswith(("le", "ee", "oe", "ye"))
    silent_ed = letters.endswith("ed") and not letters.endswith(("ted", "ded", "eed"))
    if (silent_e or silent_ed) and count > 1:
        count -= 1
    return max(count, 1)


def readability(text: str) -> Readability:
    """Score a text by Flesch's formula; 100 is easy, 0 very hard, and both ends are open.

    An empty text scores 0. The score means something for English prose only, and little for a
    text of fewer than about 100 words.
    """
    found = words(text)
    n_sentences = len(sentences(text))
    if not found:
        return Readability(0.0, "empty", 0, 0)
    n_syllables = sum(syllables(word) for word in found)
    score = 206.835 - 1.015 * len(found) / n_sentences - 84.6 * n_syllables / len(found)
    grade = next((name for bound, name in _GRADES if score >= bound), "very difficult")
    return Readability(round(score, 1), grade, len(found), n_sentences)
