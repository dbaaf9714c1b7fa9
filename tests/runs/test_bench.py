from __future__ import annotations

import json

import pytest
from script_runs import SCRIPTS

import bench  # isort: skip - on the path by script_runs
from benchmarks import WORKS
from benchmarks.tables import Result, print_table

PLANS = ["plans", "--samples", "2000", "--ranks", "2", "--classes", "40", "--batch-size", "64"]


@pytest.mark.timeout(120)
def test_a_benchmark_is_printed_and_written(tmp_path, capsys):
    out = tmp_path / "rows.json"
    kinds = ["shuffle", "weighted"]
    bench.main([*PLANS, "--kinds", *kinds, "--markdown", "--json", str(out)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| kind | seconds | MiB above the data |"
    assert [line.split("|")[1].strip() for line in lines[2:]] == kinds
    rows = json.loads(out.read_text())
    assert [row["kind"] for row in rows] == kinds
    assert all(row["seconds"] > 0 for row in rows)


def test_every_benchmark_has_a_module():
    assert all((SCRIPTS / "benchmarks" / f"{module}.py").exists() for module, _ in WORKS.values())


def test_an_unknown_benchmark_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        bench.main(["plan"])
    assert "'plans'" in capsys.readouterr().err


def test_a_printed_table_shows_whole_names_and_constant_columns_once(capsys):
    names = ["stock", "resized_pack_jpeg", "limit: decode alone"]
    rows = [{"work": "images", "variant": n, **dict.fromkeys("abcdefgh", 1.5)} for n in names]
    rows[0]["a"] = None
    print_table(Result("Loaders", [{**row, "ratio_cpu": i / 7} for i, row in enumerate(rows)]))
    said = capsys.readouterr().out
    assert all(name in said for name in names)
    assert said.count("images") == 1
    print_table(Result("One", rows[:1]))
    assert "images" in capsys.readouterr().out
    print_table(Result("None", []))
