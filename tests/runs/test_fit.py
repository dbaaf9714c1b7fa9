from __future__ import annotations

import csv
import doctest
import importlib
import os
import re
import runpy
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from processes import Program, members
from script_runs import (  # noqa: F401 - a fixture that is there by being known
    CPU,
    OWN,
    SCRIPTS,
    as_if_alone,
    fit,
    on_images,
    results,
    run_folder,
    write_images,
)

from datamodules import ImageFolderDataModule
from models import Classifier


@pytest.fixture
def run(capfd):
    def run(*arguments):
        try:
            code = fit.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # --help and --print_config
            code = stop.code
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def images(tmp_path):
    return on_images(write_images(tmp_path / "images"))


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)


def metrics(folder: Path) -> dict[str, list[float]]:
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    timed = ("train_data_wait", "train_samples_per_second")  # no two runs take the same time
    names = [name for name in rows[0] if name not in timed]
    return {name: [float(r[name]) for r in rows if r[name]] for name in names}


def best_epoch(folder: Path) -> int:
    return torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["epoch"]


# --- what a run leaves ---------------------------------------------------------------------------


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


def test_without_val_split_the_last_checkpoint_is_kept_and_it_is_said(run, images):
    code, out, _ = run(*images, "--max_epochs", 2, "--data.val_split", 0)
    assert code == 0
    assert "test, last checkpoint, as no validation chose a best one" in out
    assert [p.name for p in Path("runs/image_folder-1/checkpoints").iterdir()] == ["last.ckpt"]


def test_without_test_split_val_is_shown_and_it_is_said(run, images):
    code, out, _ = run(*images, "--max_epochs", 1, "--data.test_split", 0)
    assert code == 0
    assert "val (there is no test split), best checkpoint" in out


def test_with_neither_split_nothing_is_tested_and_it_is_said(run, images):
    no_splits = ["--data.val_split", 0, "--data.test_split", 0]
    code, out, _ = run(*images, "--max_epochs", 1, *no_splits)
    assert code == 0
    assert "no test: there is neither a test nor a val split" in out
    assert "checkpoints/last.ckpt" in out


def test_steps_that_end_before_the_first_validation_leave_the_last_checkpoint(run, images):
    code, out, err = run(*images, "--max_steps", 1)
    assert (code, err) == (0, "")
    assert "last checkpoint, as no validation chose a best one" in out


def test_validation_within_an_epoch_chooses_the_best_too(run, images):
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
    assert "checkpoint        none was written" in out


# --- which checkpoint, and when to stop ----------------------------------------------------------


def test_patience_ends_a_run_that_gets_no_better(run, images):
    code, out, _ = run(*images, "--patience", 2, "--max_epochs", 40, "--model.lr", 0)
    assert code == 0
    assert out.count("epoch ") == 3
    assert "stopped early" in out


def test_patience_without_validation_is_refused(run, images):
    code, _, err = run(*images, "--patience", 2, "--data.val_split", 0)
    assert code == 2
    assert err == (
        "error: --patience needs a validation split, and there is none; give one, such as "
        "--data.val_split 0.1, or leave --patience out\n"
    )
    assert not list(Path("runs").iterdir())


def test_another_metric_may_decide(run, images):
    code, out, _ = run(*images, "--max_epochs", 2, "--monitor", "val_macro_f1")
    assert code == 0
    assert "best checkpoint, val_macro_f1" in out


def test_a_metric_that_is_not_logged_is_refused_with_the_closest(run, images):
    code, _, err = run(*images, "--max_epochs", 2, "--monitor", "val_acuracy")
    assert code == 2
    assert "--monitor val_acuracy is not logged; did you mean val_accuracy?" in err
    assert err.count("\n") == 1


def test_regression_is_judged_by_r2_and_draws_no_matrix(run, own):
    code, out, err = run("--data", "own.Numbers", "--model", "Regressor", "--max_epochs", 2, *CPU)
    assert (code, err) == (0, "")
    assert "best checkpoint, val_r2" in out
    assert "rmse" in out
    assert not Path("runs/numbers-1/confusion_matrix.png").exists()


def test_a_model_that_logs_only_a_loss_is_judged_by_it(run, own):
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


# --- resuming and reloading ----------------------------------------------------------------------


def test_an_interrupted_run_goes_on_by_the_command_it_shows_and_ends_the_same(run, images, own):
    assert run(*images, "--max_epochs", 4)[0] == 0
    code, out, err = run(*images, "--max_epochs", 4, "--callbacks", "own.Interrupt")
    assert code == 130
    assert out.count("epoch ") == 2
    command = re.search(r"go on with: python \S+ (.*)\n", err)[1].split()
    code, out, err = run(*command, "--callbacks", "null")
    assert (code, err) == (0, "")
    assert "epoch 3/4" in out
    assert "epoch 2/4" not in out
    whole, rest = (metrics(Path(f"runs/image_folder-{n}"))["train_loss"] for n in (1, 3))
    assert rest == whole[2:]
    ends = [torch.load(f"runs/image_folder-{n}/checkpoints/last.ckpt") for n in (1, 3)]
    torch.testing.assert_close(ends[0]["state_dict"], ends[1]["state_dict"], rtol=0, atol=0)


def test_a_resumed_run_keeps_the_best_of_the_first(run, images):
    assert run(*images, "--max_epochs", 12)[0] == 0
    assert max(metrics(Path("runs/image_folder-1"))["val_accuracy"]) == 1.0
    last = "runs/image_folder-1/checkpoints/last.ckpt"
    code, out, err = run(*images, "--max_epochs", 13, "--ckpt_path", last)
    assert (code, err) == (0, "")
    assert "checkpoint        runs/image_folder-1/checkpoints/best.ckpt" in out
    assert "best checkpoint, val_accuracy 1.0000" in out


def test_a_checkpoint_with_nothing_left_to_train_says_so_and_leaves_no_folder(run, images):
    assert run(*images, "--max_epochs", 1)[0] == 0
    last = "runs/image_folder-1/checkpoints/last.ckpt"
    code, _, err = run(*images, "--max_epochs", 1, "--ckpt_path", last)
    assert code == 2
    assert "has run all of its epochs; raise --max_epochs" in err
    assert [folder.name for folder in Path("runs").iterdir()] == ["image_folder-1"]


def test_h30_model_and_data_load_from_the_checkpoint_alone_and_the_fit_resumes(run, images):
    assert run(*images, "--max_epochs", 1)[0] == 0
    best = "runs/image_folder-1/checkpoints/best.ckpt"
    data, model = ImageFolderDataModule("images"), Classifier.load_from_checkpoint(best)
    data = ImageFolderDataModule.load_from_checkpoint(best)
    assert data.hparams.batch_size == 17
    saved = torch.load(best, weights_only=True)
    assert saved["written_by"] == {
        "model_class": "models.classifier.Classifier",
        "data_class": "datamodules.image_folder.ImageFolderDataModule",
    }
    again = Classifier.load_from_checkpoint(best)
    inputs = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(model.eval()(inputs), again.eval()(inputs), rtol=0, atol=1e-6)
    assert run(*images, "--max_epochs", 2, "--ckpt_path", best)[0] == 0
    Path("images").rename("elsewhere")
    assert ImageFolderDataModule.load_from_checkpoint(best).classes == ["dark", "grey", "light"]


def test_h30_equal_names_of_hyperparameters_never_stop_a_run(run, own):
    flags = ["--data", "own.Plain", "--model", "own.OwnModel", "--data.num_classes", 3]
    code, _, err = run(*flags, "--model.num_classes", 2, "--max_epochs", 1, *CPU)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("name", ["absent.ckpt", "own.py"])
def test_a_checkpoint_that_is_none_is_said_in_one_line(run, images, own, name):
    code, _, err = run(*images, "--ckpt_path", name)
    assert code == 1
    assert name in err
    assert err.count("\n") == 1


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--epohcs 3", "unknown option --epohcs; did you mean --max_epochs?"),
        ("--data.rot x", "unknown option --data.rot; did you mean --data.root?"),
        ("--data.root photos", "name the class as well, such as --data ImageFolderDataModule"),
        ("--batch_size 8", "did you mean --data.batch_size?"),
        ("--lr 1", "did you mean --model.lr?"),
        ("--max_epoch 3", "did you mean --max_epochs?"),
        ("--model.nett resnet18", "did you mean --model.net?"),
        ("--data ImageFolder", "did you mean ImageFolderDataModule? known: CIFAR10DataModule, "),
        ("--data datamodules.samples.digitz", "did you mean digits?"),
        (
            "--data TabularDataModule",
            "datamodules.TabularDataModule needs --data.path and --data.target",
        ),
        (
            "--config handed.yaml",
            "unknown option --data.bath_size; did you mean --data.batch_size?",
        ),
        ("--data nowhere.Data", "No module named 'nowhere'"),
        ("--data json.JSONDecoder", "is no LightningDataModule, nor a function"),
        ("--model Clasifier", "did you mean Classifier?"),
        ("--model.net resnt18", "did you mean 'resnet18'?"),
        ("--model.lr fast", "--model.lr: expected float, got 'fast'"),
        ("--max_epochs many", "--max_epochs: expected int or null, got 'many'"),
        ("--data ImageFolderDataModule --data.batch_size 0", "batch_size must be"),
        ("--data ImageFolderDataModule --data.mode X", "expected 'RGB' or 'L', got 'X'"),
        (
            "--data ImageFolderDataModule --data.val_split 0.7 --data.test_split 0.5",
            "fractions must sum to at most 1",
        ),
        ("--config absent.yaml", "absent.yaml"),
        ("--config wrong.yaml", "unknown option --epohcs; did you mean --max_epochs?"),
        ("digits", "unexpected argument 'digits'"),
        ("--accelerator cuda", "--accelerator cuda: there is none here; this machine has cpu"),
        ("--strategy dpp --accelerator cpu", "invalid strategy name"),
        ("--seed -1", "--seed must be 0 to 4294967295, got -1"),
        ("--patience 0", "--patience must be at least 1, got 0"),
    ],
)
def test_a_mistake_in_usage_is_one_line_and_exit_code_2(run, arguments, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    Path("wrong.yaml").write_text("epohcs: 3\n")
    digits = "class_path: datamodules.samples.digits"
    Path("handed.yaml").write_text(f"data: {{{digits}, init_args: {{bath_size: 8}}}}\n")
    code, out, err = run(*arguments.split())
    assert code == 2
    assert out == ""
    assert said in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not list(Path().glob("runs/*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data.root", "nowhere"], "root='nowhere' does not exist"),
        (["--data.root", "empty"], "empty"),
        (["--data.root", "odd"], "damson"),
        (["--data.root", "damaged"], "damaged/a/0.png"),
    ],
)
@pytest.mark.filterwarnings("ignore:The following words")
def test_a_mistake_in_the_data_is_told_briefly_and_exit_code_1(run, arguments, said):
    Path("empty").mkdir()
    write_images(Path("odd/train"), each=4)
    write_images(Path("odd/val"), each=2)
    Path("odd/val/dark").rename("odd/val/damson")
    write_images(Path("images"))
    for name in "ab":
        Path(f"damaged/{name}").mkdir(parents=True)
        for number in range(10):
            Path(f"damaged/{name}/{number}.png").write_bytes(b"no image")
    flags = ["--data", "ImageFolderDataModule", *arguments, "--data.num_workers", "0", *CPU]
    code, _, err = run(*flags)
    assert code == 1
    assert said in err or (said == "damaged/a/0.png" and "damaged/" in err)
    assert "Traceback" not in err
    assert err.count("\n") <= 2
    assert not list(Path().glob("runs/*"))
    assert "Traceback" in run(*flags, "--traceback")[2]


def test_an_error_in_a_worker_is_told_without_the_workers_traceback(run):
    Path("damaged/a").mkdir(parents=True)
    Path("damaged/b").mkdir()
    for path in ("damaged/a/0.png", "damaged/a/1.png", "damaged/b/0.png", "damaged/b/1.png"):
        Path(path).write_bytes(b"no image")
    flags = ["--data.root", "damaged", "--data.val_split", "0", "--data.test_split", "0"]
    code, _, err = run("--data", "ImageFolderDataModule", *flags, "--data.num_workers", "1", *CPU)
    assert code == 1
    assert "Traceback" not in err
    assert "damaged/" in err


def test_names_of_classes_are_found_in_any_case_and_by_import_path(run, own):
    for name in ("own.Points", "own.points"):
        code, _, err = run("--data", name, "--model", "classifier", "--max_epochs", 1, *CPU)
        assert (code, err) == (0, "")


def test_a_network_of_the_users_by_import_path(run, own):
    Path("nets.py").write_text(
        "import torch\n\n\nclass Small(torch.nn.Linear):\n"
        "    def __init__(self, width: int = 2):\n        super().__init__(3, width)\n"
    )
    flags = ["--data", "own.Points", "--model.net", "nets.Small", "--max_epochs", 1]
    code, out, err = run(*flags, *CPU)
    assert (code, err) == (0, "")
    assert "8 weights" in out


def test_print_config_is_read_back(run, images):
    code, out, err = run(*images, "--max_epochs", 2, "--print_config")
    assert (code, err) == (0, "")
    Path("all.yaml").write_text(out)
    assert yaml.safe_load(out)["data"]["init_args"]["batch_size"] == 17
    again = run("--config", "all.yaml", "--print_config")
    assert again == (0, out, "")


def test_flags_win_over_the_file(run, images):
    Path("all.yaml").write_text(run(*images, "--print_config")[1])
    flags = ["--data.batch_size", 9, "--max_epochs", 7]
    found = yaml.safe_load(run("--config", "all.yaml", *flags, "--print_config")[1])
    assert (found["data"]["init_args"]["batch_size"], found["max_epochs"]) == (9, 7)


@pytest.mark.parametrize("named", [[], ["--data", "digits"], ["--config", "named.yaml"]], ids=str)
def test_options_of_embedded_data_are_handed_on(run, named):
    Path("named.yaml").write_text("data: {class_path: datamodules.samples.digits}\n")
    given = ["--data.batch_size", 8, "--data.val_split=0.2", "--data.num_workers", 0]
    code, out, _ = run(*named, *given, "--print_config")
    assert code == 0
    found = yaml.safe_load(out)["data"]
    found = found.get("dict_kwargs") or found["init_args"]
    assert (found["batch_size"], found["val_split"], found["num_workers"]) == (8, 0.2, 0)
    Path("all.yaml").write_text(out)
    assert run("--config", "all.yaml", "--print_config")[1] == out


def test_help_is_in_groups_with_defaults(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for said in ("Run:", "Data:", "Model:", "Trainer, as in Lightning:", "examples:", "--patience"):
        assert said in out
    assert re.search(r"--devices DEVICES(.*\n)*?.*default: 1\)", out)
    assert "paramref" not in out


OPTIONS = {
    "prefetch_factor": 4,
    "persistent_workers": True,
    "timeout": 5,
    "multiprocessing_context": "spawn",
}


@pytest.mark.parametrize("names", [*([name] for name in OPTIONS), list(OPTIONS)], ids="+".join)
def test_h21_options_for_workers_with_no_workers(run, images, names):
    given = yaml.safe_dump({name: OPTIONS[name] for name in names}, default_flow_style=True)
    code, _, err = run(*images, "--max_epochs", 1, "--data.loader_options", given)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.py")), ids=lambda path: path.name)
def test_h18_importing_a_script_starts_nothing(script, capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if Path(p) != SCRIPTS])
    for path in SCRIPTS.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    if script.name not in ("fit.py", "predict.py"):
        monkeypatch.syspath_prepend(str(SCRIPTS))  # as the worker of one of these two has it
    before = sorted(tmp_path.rglob("*"))
    found = runpy.run_path(str(script), run_name="__mp_main__")
    assert capfd.readouterr() == ("", "")
    assert sorted(tmp_path.rglob("*")) == before
    assert found


@pytest.mark.parametrize("name", ["command_line", "failures", "names", "run_folder"])
def test_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# --- parts ---------------------------------------------------------------------------------------


def test_each_run_gets_a_folder_of_its_own(tmp_path):
    names = [run_folder.claim_folder(tmp_path / "runs", "digits").name for _ in range(3)]
    assert names == ["digits-1", "digits-2", "digits-3"]
    (tmp_path / "runs" / "digits-2").rmdir()
    assert run_folder.claim_folder(tmp_path / "runs", "digits").name == "digits-4"
    assert run_folder.claim_folder(tmp_path / "runs", "wine").name == "wine-1"


@pytest.mark.parametrize("num_classes", [2, 31, 120])
def test_a_confusion_matrix_of_any_size_becomes_a_figure(tmp_path, num_classes):
    counts = np.random.default_rng(0).integers(0, 5, (num_classes, num_classes))
    names = [f"a rather long class name {k}" for k in range(num_classes)]
    names[0], names[1] = "cost $1 to $2", "手写"
    results.draw_confusion(counts, names, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes()[1:4] == b"PNG"


def test_a_confusion_matrix_of_several_labels_becomes_a_figure(tmp_path):
    results.draw_confusion(
        np.array([[[5, 1], [0, 2]], [[0, 0], [3, 5]]]), ["a", "b"], tmp_path / "f.png"
    )
    assert (tmp_path / "f.png").stat().st_size > 1000


# --- as a program --------------------------------------------------------------------------------


def start(*arguments, folder=None):
    return Program(SCRIPTS / "fit.py", *arguments, folder=folder, OMP_NUM_THREADS="1")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Several runs at once, each in a folder of its own: (folder, program)."""
    two = ["--devices", 2, "--strategy", "ddp"]
    fails = ["--data", "own.Points", "--max_epochs", 1, *two, *CPU, "--data.fails"]
    commands = {
        "default": CPU,
        "images": [*on_images("images"), "--max_epochs", 2, *two],
        "rank 0": [*fails, "rank 0"],
        "rank 1": [*fails, "rank 1"],
    }
    started = {}
    for name, options in commands.items():
        folder = tmp_path_factory.mktemp("run")
        write_images(folder / "images")
        (folder / "own.py").write_text(OWN)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DATAMODULES_CACHE", str(folder / "cache"))
            started[name] = folder, start(*options, folder=folder)
    yield started
    for _, program in started.values():
        program.end()


@pytest.mark.timeout(400)
def test_the_default_command_trains_digits_to_97_percent(programs):
    folder, program = programs["default"]
    out = program.finished(300)
    accuracy = float(re.search(r"│ accuracy +│ +([\d.]+) │", out)[1])
    print(f"accuracy {accuracy}")
    assert accuracy >= 0.97
    noise = [line for line in out.splitlines() if re.search("warning|error|Tip|deprec", line, re.I)]
    assert not noise
    assert (folder / "runs/digits-1/confusion_matrix.png").is_file()


@pytest.mark.timeout(400)
def test_two_processes_share_one_folder_and_show_one_table(programs):
    folder, program = programs["images"]
    out = program.finished(300)
    assert [p.name for p in (folder / "runs").iterdir()] == ["image_folder-1"]
    assert {p.name for p in folder.iterdir()} <= {"images", "runs", "cache", "own.py"}
    assert out.count("│ accuracy ") == out.count("epoch 2/2") == out.count("checkpoint    ") == 1
    assert "runs/image_folder-1/checkpoints/best.ckpt" in out


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.timeout(400)
def test_a_process_that_fails_ends_the_others_and_says_why_once(programs, rank):
    _, program = programs[f"rank {rank}"]
    out = program.finished(300, code=1)
    assert out.count("error: ") == 1
    assert "the value 'x' is no number" in out
    assert "Traceback" not in out


@pytest.mark.timeout(200)
def test_ctrl_c_says_where_the_last_checkpoint_is(own):
    process = start("--data", "own.Points", "--max_epochs", 5000, *CPU).process
    for line in process.stdout:
        if line.startswith("epoch 3/"):
            os.killpg(process.pid, signal.SIGINT)
            break
    out, _ = process.communicate(timeout=150)
    assert process.returncode == 130
    assert "the last checkpoint is runs/points-1/checkpoints/last.ckpt; go on with: " in out
    assert "Traceback" not in out
    assert not members(process.pid)


def test_usage_is_exit_code_2_of_the_program_too():
    out = start("--epohcs", 3).finished(150, code=2)
    assert out == "error: unknown option --epohcs; did you mean --max_epochs?\n"
