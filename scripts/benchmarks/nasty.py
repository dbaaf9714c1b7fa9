"""Compare what readers return for files that break programs with the true content."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .tables import Result


class Answer(NamedTuple):
    """The result of one reader on one file.

    Attributes:
        right: The content is correct, or a damaged file was refused by name.
        text: A short description.
        silent: Wrong content without an error or a message.
    """

    right: bool
    text: str
    silent: bool = False

    def __str__(self) -> str:
        verdict = "right" if self.right else "WRONG, silent" if self.silent else "wrong"
        return f"{verdict}: {self.text}"


def refused(error: Exception, path: Path, *, whole: bool) -> Answer:
    """Judge an error: right if the file is damaged and the error names it.

    Args:
        error: Raised by the reader.
        path: The file.
        whole: Whether the file has correct content.
    """
    text = _shorten(error, path)
    if whole:
        return Answer(False, f"refused a good file: {text}")
    named = path.name in str(error)
    return Answer(named, f"refused: {text}" if named else f"refused without its name: {text}")


def _shorten(error: Exception, path: Path, most: int = 70) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    for name in (repr(str(path)), str(path), path.name):
        text = text.replace(name, "")
    text = text.strip(" :,;'")
    return text if len(text) <= most else text[: most - 3] + "..."


def read_list(path: Path) -> list[dict[str, str]]:
    """Read the rows of a ``TABLE.tsv``.

    Raises:
        FileNotFoundError: If it does not exist.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r} does not exist; pass --root, the folder above it")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def compare_readers(
    title: str,
    cases: Iterable[tuple[Path, str, Any]],
    readers: Mapping[str, Callable[..., Any]],
    judge: Callable[..., Answer],
    note: str,
) -> Result:
    """Judge every reader on every file.

    Args:
        title: Of the table.
        cases: A file, what is wrong with it, and its true content.
        readers: By column name.
        judge: Takes reader, file and true content.
        note: Last line below the table.

    Returns:
        A row per file, and a note such as ``here: 57 of 57 right, 0 silently wrong``.
    """
    rows: list[dict[str, Any]] = []
    answers: dict[str, list[Answer]] = {name: [] for name in readers}
    for path, what, truth in cases:
        row = {"file": path.name, "what is wrong": what}
        for name, read in readers.items():
            answers[name].append(judge(read, path, truth))
            row[name] = str(answers[name][-1])
        rows.append(row)
    counts = [
        f"{name}: {sum(a.right for a in found)} of {len(found)} right, "
        f"{sum(a.silent for a in found)} silently wrong"
        for name, found in answers.items()
    ]
    return Result(title, rows, notes=["; ".join(counts), note])
