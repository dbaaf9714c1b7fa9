from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# inside core: who may use whom of the project
GROUND = {
    "batch",
    "splits",
    "seeding",
    "samplers",
    "decode",
    "packs",
    "finish",
    "loader",
    "loader_options",
    "keyed",
}
HEAVY = {"polars", "tokenizers", "matplotlib", "sklearn", "pandas", "simplejpeg", "numba"}
FILES = sorted(
    p for folder in ("datamodules", "models", "scripts") for p in (ROOT / folder).rglob("*.py")
)


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Dotted names that a file imports, relative ones resolved."""
    package = path.relative_to(ROOT).parent.parts
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    found, parts = imports(path), path.relative_to(ROOT).parts
    ours = {name for name in found if name.split(".")[0] in ("datamodules", "models", "scripts")}
    if parts[0] == "datamodules":
        assert not any(n.startswith(("models", "scripts")) for n in ours)
        assert not any(n.startswith("datamodules.") for n in imports_absolute(path)), "use relative"
    if parts[0] == "models":
        allowed = ("models", "datamodules.core.batch")
        assert all(n.startswith(allowed) or n in ("datamodules", "datamodules.core") for n in ours)
    if parts[:2] == ("datamodules", "core"):
        assert all(n.startswith("datamodules.core") for n in ours), "core uses core alone"
        if path.stem in GROUND:
            used = {n.split(".")[2] for n in ours if n.count(".") >= 2}
            assert "base" not in used
    elif parts[0] == "datamodules" and len(parts) == 2 and path.stem not in ("__init__", "samples"):
        assert all(n.startswith("datamodules.core") for n in ours), "a source uses no other source"


def imports_absolute(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level and node.module
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_are_imported_where_they_are_used(path):
    loaded = {name.split(".")[0] for name in imports(path, top_level_only=True)}
    assert not loaded & HEAVY
