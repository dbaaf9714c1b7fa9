from __future__ import annotations

import doctest
import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
import yaml
from script_runs import (  # noqa: F401 - an autouse fixture
    CPU,
    SCRIPTS,
    as_if_alone,
    write_images,
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--max_epohcs 3", "unknown option --max_epohcs; did you mean '--max_epochs'?"),
        ("--data.rot x", "unknown option --data.rot; did you mean '--data.root'?"),
        (
            "--data.root photos",
            "name the class as well: --data ImageFolderDataModule --data.root",
        ),
        ("--batch_size 8", "did you mean '--data.batch_size'?"),
        ("--lr 1", "did you mean '--model.lr'?"),
        ("--max_epoch 3", "did you mean '--max_epochs'?"),
        ("--data ImageFolderDataModule --data.pack x", "pass --data.image_options.pack"),
        ("--model.nett resnet18", "did you mean '--model.net'?"),
        ("--data ImageFolder", "did you mean 'ImageFolderDataModule'? known: CIFAR10DataModule, "),
        ("--data datamodules.samples.digitz", "did you mean 'digits'?"),
        (
            "--data TabularDataModule",
            "datamodules.TabularDataModule needs --data.path and --data.target",
        ),
        (
            "--config handed.yaml",
            "unknown option --data.bath_size; did you mean '--data.batch_size'?",
        ),
        ("--data nowhere.Data", "No module named 'nowhere'"),
        ("--data json.JSONDecoder", "is not a LightningDataModule, nor a function"),
        ("--model Clasifier", "did you mean 'Classifier'?"),
        ("--model.net resnt18", "did you mean 'resnet18'?"),
        ("--model.lr fast", "--model.lr: expected float, got 'fast'"),
        ("--max_epochs many", "--max_epochs: expected one of [int, null], got 'many'"),
        ("--data ImageFolderDataModule --data.batch_size 0", "batch_size must be"),
        ("--data ImageFolderDataModule --data.mode X", "expected one of ['RGB', 'L'], got 'X'"),
        (
            "--data ImageFolderDataModule --data.val_split 0.7 --data.test_split 0.5",
            "fractions must sum to at most 1",
        ),
        ("--config absent.yaml", "absent.yaml"),
        ("--config wrong.yaml", "unknown option --max_epohcs; did you mean '--max_epochs'?"),
        (
            "--config class.yaml",
            "unknown --data ImageFolder; did you mean 'ImageFolderDataModule'?",
        ),
        ("digits", "unexpected argument 'digits'"),
        ("--accelerator cuda", "--accelerator cuda is not available; this machine has cpu"),
        ("--strategy dpp --accelerator cpu", "invalid strategy name"),
        ("--seed -1", "--seed must be 0 to 4294967295, got -1"),
        ("--patience 0", "--patience must be at least 1, got 0"),
    ],
)
def test_wrong_usage_gives_one_line_and_exit_code_2(run, arguments, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    Path("wrong.yaml").write_text("max_epohcs: 3\n")
    Path("class.yaml").write_text("data: {class_path: ImageFolder}\n")
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
def test_wrong_data_gives_a_short_message_and_exit_code_1(run, arguments, said):
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


def test_an_error_in_a_worker_is_reported_without_its_traceback(run):
    Path("damaged/a").mkdir(parents=True)
    Path("damaged/b").mkdir()
    for path in ("damaged/a/0.png", "damaged/a/1.png", "damaged/b/0.png", "damaged/b/1.png"):
        Path(path).write_bytes(b"no image")
    flags = ["--data.root", "damaged", "--data.val_split", "0", "--data.test_split", "0"]
    code, _, err = run("--data", "ImageFolderDataModule", *flags, "--data.num_workers", "1", *CPU)
    assert code == 1
    assert "Traceback" not in err
    assert "damaged/" in err


def test_classes_are_found_by_name_in_any_case_and_by_import_path(run, own):
    for name in ("own.Points", "own.points"):
        code, _, err = run("--data", name, "--model", "classifier", "--max_epochs", 1, *CPU)
        assert (code, err) == (0, "")


def test_the_users_own_network_is_given_by_import_path(run, own):
    Path("nets.py").write_text(
        "import torch\n\n\nclass Small(torch.nn.Linear):\n"
        "    def __init__(self, width: int = 2):\n        super().__init__(3, width)\n"
    )
    flags = ["--data", "own.Points", "--model.net", "nets.Small", "--max_epochs", 1]
    code, out, err = run(*flags, *CPU)
    assert (code, err) == (0, "")
    assert "8 weights" in out


def test_the_output_of_print_config_is_read_by_config(run, images):
    code, out, err = run(*images, "--max_epochs", 2, "--print_config")
    assert (code, err) == (0, "")
    Path("all.yaml").write_text(out)
    assert yaml.safe_load(out)["data"]["init_args"]["batch_size"] == 17
    again = run("--config", "all.yaml", "--print_config")
    assert again == (0, out, "")


def test_options_override_the_config_file(run, images):
    Path("all.yaml").write_text(run(*images, "--print_config")[1])
    flags = ["--data.batch_size", 9, "--max_epochs", 7]
    found = yaml.safe_load(run("--config", "all.yaml", *flags, "--print_config")[1])
    assert (found["data"]["init_args"]["batch_size"], found["max_epochs"]) == (9, 7)


@pytest.mark.parametrize("named", [[], ["--data", "digits"], ["--config", "named.yaml"]], ids=str)
def test_options_of_sample_data_reach_their_datamodule(run, named):
    Path("named.yaml").write_text("data: {class_path: datamodules.samples.digits}\n")
    given = ["--data.batch_size", 8, "--data.val_split=0.2", "--data.num_workers", 0]
    code, out, _ = run(*named, *given, "--print_config")
    assert code == 0
    found = yaml.safe_load(out)["data"]
    found = found["init_args"]
    assert (found["batch_size"], found["val_split"], found["num_workers"]) == (8, 0.2, 0)
    Path("all.yaml").write_text(out)
    assert run("--config", "all.yaml", "--print_config")[1] == out


def test_help_is_grouped_and_shows_defaults(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for said in ("Run:", "Data:", "Model:", "Trainer, as in Lightning:", "examples:", "--patience"):
        assert said in out
    assert re.search(r"--devices DEVICES(.*\n)*?.*default: 1\)", out)
    assert "paramref" not in out


MARKED = """
from typing import TypedDict
import lightning as L

class Marks(TypedDict, total=False):
    colour: str

class Marked(L.LightningDataModule):
    def __init__(self, marks: Marks | None = None):
        super().__init__()
"""


@pytest.mark.parametrize("option", ["--data.colour", "--data.marks.color"])
def test_a_key_of_a_dict_argument_is_suggested(run, option):
    Path("marked.py").write_text(MARKED)
    code, _, err = run("--data", "marked.Marked", option, "red")
    assert code == 2
    assert f"unknown option {option}; did you mean '--data.marks.colour'?" in err


def test_help_for_a_named_class_lists_its_arguments(run):
    code, out, err = run("--data", "TabularDataModule", "--help")
    assert (code, err) == (0, "")
    assert "--data.id_column" in out
    assert "--max_epochs" not in out


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
        sys.path.insert(0, str(SCRIPTS))  # as in a worker of these two; undone with the list
    before = sorted(tmp_path.rglob("*"))
    found = runpy.run_path(str(script), run_name="__mp_main__")
    assert capfd.readouterr() == ("", "")
    assert sorted(tmp_path.rglob("*")) == before
    assert found


MODULES = ["cross_validation", "failures", "run_folder"]
MODULES += ["benchmarks.tables", "benchmarks.nasty_tables"]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_of_the_scripts_pass(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
