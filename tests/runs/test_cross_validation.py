from __future__ import annotations

import csv

import pytest
from script_runs import CPU, fit

from datamodules.samples import wine

LAST = ("--max_epochs", "2", "--enable_progress_bar", "false")


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("repeats", [1, 2])
def test_each_row_is_predicted_once_a_repeat_by_a_model_that_never_saw_it(
    tmp_path, capsys, repeats
):
    asked = ["--data", "datamodules.samples.wine", "--folds", "3", "--repeats", str(repeats)]
    assert fit.main([*asked, *CPU, *LAST, "--runs_dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"held-out rows of {3 * repeats} fits" in said
    assert "accuracy" in said
    rows = rows_of(tmp_path / "wine-1" / "out_of_fold.csv")
    assert len(rows) == 178 * repeats
    for repeat in range(repeats):
        part = rows[178 * repeat : 178 * (repeat + 1)]
        assert sorted(int(row["key"]) for row in part) == list(range(178))
        assert len({row["fit"] for row in part}) == 3
    dm = wine(split_options={"folds": 3, "fold": 1})
    dm.setup()
    name = "fold-1" if repeats == 1 else "repeat-0-fold-1"
    mine = [int(row["key"]) for row in rows if row["fit"] == name]
    assert mine == dm._parts["val"].rows.tolist()
    assert {row["target"] for row in rows} == set(dm.classes)
    right = sum(row["target"] == row["class"] for row in rows) / len(rows)
    printed = next(line for line in said.splitlines() if line.split()[1:2] == ["accuracy"])
    assert float(printed.split()[3]) == pytest.approx(right, abs=0.01)


def test_regression_targets_are_on_their_original_scale(tmp_path, capsys):
    asked = ["--data", "datamodules.samples.diabetes", "--model", "Regressor", "--folds", "2"]
    assert fit.main([*asked, *CPU, *LAST, "--runs_dir", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "diabetes-1" / "out_of_fold.csv")
    assert len(rows) == 442
    assert max(float(row["target"]) for row in rows) == pytest.approx(346, abs=0.01)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--folds", "1"], "--folds must be at least 2, got 1"),
        (["--repeats", "2"], "needs --folds"),
        (["--folds", "2", "--data.val_split", "0.2"], "leave val_split out"),
    ],
)
def test_wrong_numbers_of_folds_are_refused(tmp_path, capsys, flags, message):
    asked = ["--data", "datamodules.samples.wine", *flags, *CPU, *LAST]
    assert fit.main([*asked, "--runs_dir", str(tmp_path)]) in (1, 2)
    assert message in capsys.readouterr().err
