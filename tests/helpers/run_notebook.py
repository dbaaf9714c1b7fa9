"""Runs a notebook's code cells in order, as Jupyter does: ``python run_notebook.py NOTEBOOK``."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path


def show(value: object) -> None:
    """Say what a notebook would show of a cell's last value."""
    if value is None:
        return
    for name in ("_repr_html_", "_repr_png_"):
        shown = getattr(value, name, lambda: None)()
        if shown is not None:
            print(f"SHOWN {type(value).__name__} {name} {len(shown)}")
            return
    print(f"SHOWN {value!r}")


def main() -> None:
    cells = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), f"cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            show(eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names))


if __name__ == "__main__":
    main()
