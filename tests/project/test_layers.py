from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each room may import the rooms before it, and itself.
ROOMS = (
    *("settings", "seeding", "readers", "batches", "splits", "sampling", "loading"),
    *("images", "tables", "texts", "adapters", "figures", "core", "feature_packs"),
    *("sources", "insight"),
)
HEAVY = {"polars", "tokenizers", "matplotlib", "sklearn", "pandas", "simplejpeg", "numba"}
FILES = sorted(
    p for folder in ("datamodules", "models", "scripts") for p in (ROOT / folder).rglob("*.py")
)


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Return the absolute names that a file imports, dynamic imports too."""
    package = path.relative_to(ROOT).parent.parts
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names} | {module}
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            names |= {resolved(package, text) for text in texts(node)}
    return names


def called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def texts(node: ast.Call) -> list[str]:
    """Return string constants in the arguments; an import of a computed name has none."""
    parts = [part for argument in node.args for part in ast.walk(argument)]
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def resolved(package: tuple[str, ...], name: str) -> str:
    level = len(name) - len(name.lstrip("."))
    return ".".join([*package[: len(package) - level + 1], name[level:]]) if level else name


def room_of(module: str) -> str | None:
    """Return the room of a module; None outside `datamodules` and for its `__init__`."""
    parts = module.split(".")
    if parts[0] != "datamodules" or len(parts) == 1:
        return None
    return parts[1] if (ROOT / "datamodules" / parts[1]).is_dir() else "sources"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    parts = path.relative_to(ROOT).parts
    ours = {n for n in imports(path) if n.split(".")[0] in ("datamodules", "models", "scripts")}
    if parts[0] == "datamodules":
        assert not any(name.startswith(("models", "scripts")) for name in ours)
        if len(parts) == 2 and path.stem == "__init__":
            return
        room = parts[1] if len(parts) > 2 else "sources"
        used = {room_of(name) for name in ours} - {None}
        above = {name for name in used if ROOMS.index(name) > ROOMS.index(room)}
        assert not above, f"{room} imports {above}, which are above it"
    if parts[0] == "models":
        allowed = ("models", "datamodules.batches.batch")
        assert all(n.startswith(allowed) for n in ours)
    if parts[0] == "datamodules" and len(parts) == 2 and path.stem != "samples":
        others = {n for n in ours if room_of(n) == "sources"}
        assert not others, "a source imports no other source"


def test_a_dynamic_import_is_seen(tmp_path):
    path = ROOT / "datamodules" / "core" / "datamodule.py"
    call = ast.parse("import_module('..insight.figures', __package__)").body[0].value
    package = path.relative_to(ROOT).parent.parts
    assert [resolved(package, text) for text in texts(call)] == ["datamodules.insight.figures"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_are_imported_where_they_are_used(path):
    loaded = {name.split(".")[0] for name in imports(path, top_level_only=True)}
    assert not loaded & HEAVY


def test_every_room_has_a_docstring_and_at_most_20_files():
    for room in (p for p in (ROOT / "datamodules").rglob("*/") if any(p.glob("*.py"))):
        files = [p for p in room.glob("*.py") if p.stem != "__init__"]
        assert len(files) <= 20, f"{room.name} has {len(files)} files"
        init = ast.parse((room / "__init__.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(init), f"{room.name}/__init__.py has no docstring"
