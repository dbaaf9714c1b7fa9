"""Nothing that is loaded runs code."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def calls(name: str) -> list[ast.Call]:
    """Calls of ``module.function`` in the product."""
    found = []
    for folder in ("datamodules", "models", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                    found.append(node)
    return found


def test_every_saved_state_is_loaded_as_data():
    loads = calls("torch.load")
    assert loads
    for call in loads:
        given = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert given.get("weights_only") == "True", ast.unparse(call)


def test_no_pickle_and_no_unsafe_yaml_is_read():
    for name in ("pickle.load", "pickle.loads", "yaml.load", "yaml.unsafe_load", "eval", "exec"):
        assert calls(name) == [], name
