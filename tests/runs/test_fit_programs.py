from __future__ import annotations

import os
import re
import signal

import pytest
from processes import Program, members
from script_runs import (  # noqa: F401 - an autouse fixture
    CPU,
    OWN,
    SCRIPTS,
    as_if_alone,
    on_images,
    write_images,
)


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
def test_two_processes_write_one_folder_and_print_one_table(programs):
    folder, program = programs["images"]
    out = program.finished(300)
    assert [p.name for p in (folder / "runs").iterdir()] == ["image_folder-1"]
    assert {p.name for p in folder.iterdir()} <= {"images", "runs", "cache", "own.py"}
    assert out.count("│ accuracy ") == out.count("epoch 2/2") == out.count("checkpoint    ") == 1
    assert "runs/image_folder-1/checkpoints/best.ckpt" in out


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.timeout(400)
def test_a_process_that_fails_ends_the_others_and_reports_its_error_once(programs, rank):
    _, program = programs[f"rank {rank}"]
    out = program.finished(300, code=1)
    assert out.count("error: ") == 1
    assert "the value 'x' is no number" in out
    assert "Traceback" not in out


@pytest.mark.timeout(200)
def test_ctrl_c_prints_the_path_of_the_last_checkpoint(own):
    process = start("--data", "own.Points", "--max_epochs", 5000, *CPU).process
    for line in process.stdout:
        if line.startswith("epoch 3/"):
            os.killpg(process.pid, signal.SIGINT)
            break
    out, _ = process.communicate(timeout=150)
    assert process.returncode == 130
    assert "the last checkpoint is runs/points-1/checkpoints/last.ckpt; resume with: " in out
    assert "Traceback" not in out
    assert not members(process.pid)


def test_wrong_usage_is_exit_code_2_of_the_program():
    out = start("--max_epohcs", 3).finished(150, code=2)
    assert out == "error: unknown option --max_epohcs; did you mean '--max_epochs'? see --help\n"
