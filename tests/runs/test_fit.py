from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from script_runs import (  # noqa: F401 - an autouse fixture
    CPU,
    as_if_alone,
    best_epoch,
    metrics,
    run_folder,
)


def test_a_run_leaves_settings_checkpoints_figures_and_a_table(run, images):
    code, out, err = run(*images, "--max_epochs", 3)
    folder = Path("runs/image_folder-1")
    assert (code, err) == (0, "")
    assert {p.name for p in folder.iterdir()} >= {
        "config.yaml", "metrics.csv", "hparams.yaml", "checkpoints", "confusion_matrix.png"
    }  # fmt: skip
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert "train 24, val 12, test 12" in out
    assert re.search(r"test, best checkpoint, val_accuracy [01]\.\d{4}\n", out)
    assert re.search(r"│ accuracy +│ +[01]\.\d{4} │", out)
    assert "checkpoint        runs/image_folder-1/checkpoints/best.ckpt" in out
    assert out.count("epoch ") == 3


def test_the_best_checkpoint_is_of_the_first_epoch_with_the_highest_val_accuracy(run, images):
    assert run(*images, "--max_epochs", 6, "--model.warmup_steps", 20)[0] == 0
    folder = Path("runs/image_folder-1")
    accuracies = metrics(folder)["val_accuracy"]
    assert len(set(accuracies)) > 1
    assert best_epoch(folder) == int(np.argmax(accuracies))


def test_the_saved_settings_run_again_and_give_the_same(run, images):
    assert run(*images, "--max_epochs", 2)[0] == 0
    assert run("--config", "runs/image_folder-1/config.yaml")[0] == 0
    first, second = (metrics(Path(f"runs/image_folder-{n}")) for n in (1, 2))
    assert first == second


def test_a_seed_of_its_own_gives_another_run(run, images):
    for seed in (0, 1):
        assert run(*images, "--max_epochs", 1, "--seed", seed)[0] == 0
    first, second = (metrics(Path(f"runs/image_folder-{n}")) for n in (1, 2))
    assert first["val_loss"] != second["val_loss"]


def test_without_val_split_the_last_checkpoint_is_kept(run, images):
    code, out, _ = run(*images, "--max_epochs", 2, "--data.val_split", 0)
    assert code == 0
    assert "test, last checkpoint, no validation selected a best one" in out
    assert [p.name for p in Path("runs/image_folder-1/checkpoints").iterdir()] == ["last.ckpt"]


def test_without_test_split_the_val_split_is_evaluated(run, images):
    code, out, _ = run(*images, "--max_epochs", 1, "--data.test_split", 0)
    assert code == 0
    assert "val (there is no test split), best checkpoint" in out


def test_without_test_and_val_split_nothing_is_evaluated(run, images):
    no_splits = ["--data.val_split", 0, "--data.test_split", 0]
    code, out, _ = run(*images, "--max_epochs", 1, *no_splits)
    assert code == 0
    assert "no test: there is no test or val split" in out
    assert "checkpoints/last.ckpt" in out


def test_a_run_that_ends_before_the_first_validation_keeps_the_last_checkpoint(run, images):
    code, out, err = run(*images, "--max_steps", 1)
    assert (code, err) == (0, "")
    assert "last checkpoint, no validation selected a best one" in out


def test_validation_within_an_epoch_selects_the_best_checkpoint(run, images):
    code, out, err = run(*images, "--max_epochs", 2, "--val_check_interval", 1)
    assert (code, err) == (0, "")
    assert "best checkpoint, val_accuracy" in out
    assert len(metrics(Path("runs/image_folder-1"))["val_accuracy"]) == 4


@pytest.mark.parametrize(
    "flags",
    [
        ["--fast_dev_run", "1"],
        ["--enable_checkpointing", "false"],
        ["--logger", "false"],
        ["--overfit_batches", "1"],
        ["--enable_progress_bar", "true"],
    ],
    ids=lambda flags: flags[0][2:],
)
def test_the_trainers_own_flags_work(run, images, flags):
    code, out, err = run(*images, "--max_epochs", 1, *flags)
    assert (code, err) == (0, "")
    assert "accuracy" in out


@pytest.mark.filterwarnings("ignore:You are trying to `self.log")
def test_a_barebones_run_trains_and_writes_nothing(run, images):
    code, out, _ = run(*images, "--max_epochs", 1, "--barebones", "true")
    assert code == 0
    assert "checkpoint        not written" in out


def test_patience_stops_a_run_without_improvement(run, images):
    code, out, _ = run(*images, "--patience", 2, "--max_epochs", 40, "--model.lr", 0)
    assert code == 0
    assert out.count("epoch ") == 3
    assert "stopped early" in out


def test_patience_without_validation_is_refused(run, images):
    code, _, err = run(*images, "--patience", 2, "--data.val_split", 0)
    assert code == 2
    assert err == (
        "error: --patience needs validation data, and there is none; pass --data.val_split 0.1 "
        "or remove --patience\n"
    )
    assert not list(Path("runs").iterdir())


def test_monitor_selects_another_metric(run, images):
    code, out, _ = run(*images, "--max_epochs", 2, "--monitor", "val_macro_f1")
    assert code == 0
    assert "best checkpoint, val_macro_f1" in out


def test_a_metric_that_is_not_logged_is_refused_with_a_suggestion(run, images):
    code, _, err = run(*images, "--max_epochs", 2, "--monitor", "val_acuracy")
    assert code == 2
    assert "--monitor val_acuracy is not logged; did you mean 'val_accuracy'?" in err
    assert err.count("\n") == 1


def test_regression_is_monitored_by_r2_and_draws_no_confusion_matrix(run, own):
    code, out, err = run("--data", "own.Numbers", "--model", "Regressor", "--max_epochs", 2, *CPU)
    assert (code, err) == (0, "")
    assert "best checkpoint, val_r2" in out
    assert "rmse" in out
    assert not Path("runs/numbers-1/confusion_matrix.png").exists()


def test_a_model_that_logs_only_a_loss_is_monitored_by_it(run, own):
    code, out, err = run("--data", "own.Points", "--model", "own.OwnModel", "--max_epochs", 2, *CPU)
    assert (code, err) == (0, "")
    assert "val (there is no test split), best checkpoint, val_loss" in out


@pytest.mark.parametrize(
    ("metric", "higher"),
    [("val_accuracy", True), ("val_r2", True), ("val_rmse", False), ("val_loss", False),
     ("val_mae", False), ("val_macro_f1", True), ("val_error", False)],
)  # fmt: skip
def test_losses_and_errors_are_better_when_lower(metric, higher):
    assert run_folder.is_higher_better(metric) is higher
