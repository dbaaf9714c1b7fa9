"""Build a text dataset from the docstrings of installed packages, labelled by package."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import platform
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from datamodules.splits.split import fingerprint

PACKAGES = ("numpy", "sklearn", "stdlib", "torch")
DISTRIBUTIONS = {"numpy": "numpy", "sklearn": "scikit-learn", "torch": "torch"}
# tests have few docstrings, and these name the package; the others are not code of the package
SKIPPED = frozenset(
    {"test", "tests", "testing", "idlelib", "lib2to3", "site-packages", "__pycache__"}
)
SHORTEST = 40  # characters; shorter ones, such as "See base class.", are the same everywhere
MOST = 3_000  # per package: torch has 20,000, and reading them all takes a minute


def write_docstrings(folder: Path) -> Path:
    """Write docstrings of numpy, scikit-learn, torch and the standard library as JSON lines.

    The files are parsed, not imported. The same versions give the same file: duplicates are
    dropped, and the files of a package are read in the order of a hash of their names until there
    are 3,000 docstrings.

    Args:
        folder: Created if missing. The file name contains a digest of the versions.

    Returns:
        Path of the file; each line is ``{"text": ..., "label": package, "name": dotted name}``.
    """
    versions = [f"{package} {version(name)}" for package, name in DISTRIBUTIONS.items()]
    key = fingerprint("1", platform.python_version(), *versions)[:12]
    path = folder / f"docstrings-{key}.jsonl"
    if path.is_file():
        return path
    seen: set[str] = set()
    lines = []
    for package in PACKAGES:
        chosen = []
        for name, text in _docstrings(package):
            if len(text) >= SHORTEST and text not in seen:
                seen.add(text)
                chosen.append({"text": text, "label": package, "name": name})
            if len(chosen) == MOST:
                break
        chosen.sort(key=lambda row: (row["name"], row["text"]))
        lines += [json.dumps(row, ensure_ascii=False) + "\n" for row in chosen]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="\n", dir=folder, prefix=".docstrings-", delete=False
    ) as half:
        half.writelines(lines)
    return Path(half.name).replace(path)


def _docstrings(package: str) -> Iterator[tuple[str, str]]:
    root = _root(package)
    files = [(file.relative_to(root).as_posix(), file) for file in _python_files(root)]
    # shuffled, so that the first 3,000 docstrings come from all modules of a package
    for _, file in sorted(files, key=lambda pair: hashlib.blake2b(pair[0].encode()).digest()):
        module = ".".join((package, *file.relative_to(root).with_suffix("").parts))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes such as "\d"
                tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):  # written for another version of Python
            continue
        yield from _walk(tree, module.removesuffix(".__init__"))


def _root(package: str) -> Path:
    if package == "stdlib":
        return Path(sysconfig.get_path("stdlib"))
    found = importlib.util.find_spec(package)  # of a top-level package: imports nothing
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed; install {DISTRIBUTIONS[package]}")
    return Path(found.origin).parent


def _python_files(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name not in SKIPPED:
            yield from _python_files(entry)
        elif entry.suffix == ".py" and not entry.name.startswith("test_"):
            yield entry


def _walk(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of a module and of its classes and functions, in order."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = (ast.get_docstring(node) or "").strip()
        if _encodes(text):
            yield name, text
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _walk(child, f"{name}.{child.name}")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, in a file about them
        return False
    return True
