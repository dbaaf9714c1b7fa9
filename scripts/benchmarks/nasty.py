"""Answers of a reader to files that break programs: right, refused by name, or wrong in silence."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple


class Answer(NamedTuple):
    """What a reader made of a file.

    Attributes:
        right: The value is the file's own, or a file that is not whole was refused by name.
        text: What came, in a few words.
        silent: A wrong value came without a word.
    """

    right: bool
    text: str
    silent: bool = False

    def __str__(self) -> str:
        verdict = "right" if self.right else "WRONG, silent" if self.silent else "wrong"
        return f"{verdict}: {self.text}"


def refused(error: Exception, path: Path, *, whole: bool) -> Answer:
    """Judge an error: right for a file that is not whole, where it names the file.

    Args:
        error: What the reader raised.
        path: The file.
        whole: Whether the file has an answer.
    """
    text = _in_short(error, path)
    if whole:
        return Answer(False, f"refused a good file: {text}")
    named = path.name in str(error)
    return Answer(named, f"refused: {text}" if named else f"refused without its name: {text}")


def _in_short(error: Exception, path: Path, most: int = 70) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    for name in (repr(str(path)), str(path), path.name):
        text = text.replace(name, "")
    text = text.strip(" :,;'")
    return text if len(text) <= most else text[: most - 3] + "..."


def read_list(path: Path) -> list[dict[str, str]]:
    """Lines of a ``TABLE.tsv``.

    Raises:
        FileNotFoundError: If there is none; says which option names the folder.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r} does not exist; pass --root, the folder above it")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def counted(answers: list[Answer], who: str) -> str:
    """``here: 57 of 57 right, 0 wrong in silence``."""
    right = sum(answer.right for answer in answers)
    silent = sum(answer.silent for answer in answers)
    return f"{who}: {right} of {len(answers)} right, {silent} wrong in silence"
