from __future__ import annotations

import json
import re
from pathlib import Path

from warm_start import run_warm

NOTEBOOK = Path(__file__).parents[2] / "scripts" / "tour.ipynb"
PROGRAM = Path(__file__).parents[1] / "helpers" / "run_notebook.py"


def test_the_notebook_has_the_standard_format_and_no_outputs():
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    for cell in book["cells"]:
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_the_notebook_runs_from_top_to_bottom(tmp_path, tmp_path_factory):
    out = run_warm(
        PROGRAM,
        NOTEBOOK,
        timeout=280,
        TMPDIR=str(tmp_path),
        DATAMODULES_CACHE=str(tmp_path_factory.getbasetemp() / "cache"),  # shared with others
        PYTHONPATH=str(NOTEBOOK.parent.parent),
    )
    shown = re.findall(r"SHOWN (\w+) (\w+) (\d+)", out)
    assert [kind for kind, _, _ in shown] == ["Figure", "Figure", "Figure", "Report", "Hardest"]
    assert all(int(size) > 1000 for _, _, size in shown)
    assert "report.html ['augmentation-train.png'," in out
    assert len(re.findall(r"\.png is \d \(\d+%\)", out)) == 5
    assert "epochs run: 3" in out
    accuracy = re.search(r"val accuracy ([\d.]+)", out)
    assert float(accuracy[1]) > 0.8
    assert (next(tmp_path.glob("tmp*")) / "look" / "report.html").exists()
