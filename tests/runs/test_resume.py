"""A stopped fit goes on at the very next batch: rows and augmented values of the unbroken run.

One command prints the table of situations: ``python -m pytest tests/test_resume.py -v``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from resume_run import run, seen
from warm_start import run_warm

PROGRAM = Path(__file__).parents[1] / "helpers" / "resume_run.py"
# 22 rows in batches of 4 are 6 steps an epoch, 18 in all
SITUATIONS = {
    "after the first batch": {"stop": 1},
    "in the middle of an epoch": {"stop": 3},
    "before the last batch of an epoch": {"stop": 5},
    "after the last batch of an epoch": {"stop": 6},
    "after the first batch of the second epoch": {"stop": 7},
    "in the last epoch": {"stop": 15},
    "one batch before the end": {"stop": 17},
    "at the end of the first epoch": {"stop": 1, "how": "epoch"},
    "at the end of the second epoch": {"stop": 7, "how": "epoch"},
    "gradient accumulation, after an optimiser step": {
        "stop": 4,
        "flags": {"accumulate_grad_batches": 2},
    },
    "gradient accumulation, second epoch": {
        "stop": 10,
        "flags": {"accumulate_grad_batches": 2},
    },
    "validation every second batch, before it": {"stop": 3, "flags": {"val_check_interval": 2}},
    "validation every second batch, after it": {"stop": 4, "flags": {"val_check_interval": 2}},
    "validation every second epoch": {"stop": 8, "flags": {"check_val_every_n_epoch": 2}},
    "estimated_stepping_batches": {"stop": 4, "scheduled": True},
    "estimated_stepping_batches, second epoch": {"stop": 9, "scheduled": True},
    "max_steps": {"stop": 4, "flags": {"max_steps": 14, "max_epochs": -1}},
    "max_steps, second epoch": {"stop": 9, "flags": {"max_steps": 14, "max_epochs": -1}},
    "limit_train_batches": {"stop": 2, "flags": {"limit_train_batches": 4}},
    "reload_dataloaders_every_n_epochs": {
        "stop": 8,
        "flags": {"reload_dataloaders_every_n_epochs": 1},
    },
    "2 workers that stay": {"stop": 3, "workers": 2},
    "2 workers that stay, second epoch": {"stop": 8, "workers": 2},
    "2 workers anew each epoch": {"stop": 9, "workers": 2, "persistent": False},
    "2 workers, at the end of an epoch": {"stop": 1, "how": "epoch", "workers": 2},
    "stratified batches": {"stop": 4, "sampler": "stratified"},
    "weighted draws with repeats": {"stop": 4, "sampler": "balanced"},
    "two views": {"stop": 4, "sampler": "views"},
    "a batch size that leaves one sample over": {"stop": 2, "rows": 21},
}


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists:UserWarning")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_resumed_run_continues_at_the_next_batch(tmp_path, situation):
    settings = SITUATIONS[situation]
    run({**settings, "stop": None}, tmp_path / "whole", tmp_path / "whole.out")
    with pytest.raises(SystemExit):
        run(settings, tmp_path / "stopped", tmp_path / "first.out")
    run(settings, tmp_path / "stopped", tmp_path / "rest.out", str(tmp_path / "stopped/stop.ckpt"))
    whole = seen(tmp_path / "whole.out")
    first, rest = seen(tmp_path / "first.out"), seen(tmp_path / "rest.out")
    assert first + rest == whole


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists:UserWarning")
def test_after_the_last_step_of_max_steps_with_more_steps(tmp_path):
    whole, more = {"max_epochs": 3}, {"max_steps": -1, "max_epochs": 3}
    run({"flags": whole}, tmp_path / "whole", tmp_path / "whole.out")
    stopped = {"flags": {"max_steps": 8, "max_epochs": 3}, "more": more}
    run(stopped, tmp_path / "stopped", tmp_path / "first.out")
    ckpt = next((tmp_path / "stopped").glob("step=8.ckpt"))
    run(stopped, tmp_path / "stopped", tmp_path / "rest.out", str(ckpt))
    first, rest = seen(tmp_path / "first.out"), seen(tmp_path / "rest.out")
    assert first + rest == seen(tmp_path / "whole.out")


def program(tmp_path, name, settings, ckpt=None, *, code=0):
    """One fit as a program; returns the records' path."""
    out = tmp_path / f"{name}.out"
    given = {"settings": settings, "folder": str(tmp_path / name), "out": str(out), "ckpt": ckpt}
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(given))
    run_warm(PROGRAM, path, ranks=settings.get("devices", 1), code=code)
    return out


@pytest.fixture(scope="module")
def whole_on_two(tmp_path_factory):
    """The unbroken run on two processes."""
    return program(tmp_path_factory.mktemp("two"), "whole", {"devices": 2})


@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists:UserWarning")
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"stop": 4, "how": "kill", "workers": 2}, "SIGKILL with 2 workers"),
        ({"stop": 5, "how": "kill", "every": 2}, "SIGKILL, a checkpoint every second step"),
        ({"stop": 4, "how": "term"}, "SIGTERM"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_resumes_after_a_signal(tmp_path, settings, name):
    run({**settings, "stop": None}, tmp_path / "whole", tmp_path / "whole.out")
    first = program(tmp_path, "first", settings, code=None if settings["how"] == "kill" else 0)
    step, saved = last_saved(tmp_path / "first")
    assert len(seen(first)) == settings["stop"]
    run({**settings, "stop": None}, tmp_path / "first", tmp_path / "rest.out", saved)
    whole = seen(tmp_path / "whole.out")
    assert seen(first)[:step] == whole[:step]
    assert seen(tmp_path / "rest.out") == whole[step:]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_resumes_after_a_kill_on_two_processes(tmp_path, whole_on_two, workers):
    settings = {"stop": 2, "devices": 2, "how": "kill", "workers": workers}
    first = program(tmp_path, "first", settings, code=None)
    step, saved = last_saved(tmp_path / "first")
    rest = program(tmp_path, "rest", {**settings, "stop": None}, saved)
    for rank in (0, 1):
        whole = seen(whole_on_two, rank)
        assert seen(first, rank)[:step] == whole[:step]
        assert seen(rest, rank) == whole[step:]


def last_saved(folder):
    """Step and path of the newest checkpoint."""
    saved = max(folder.glob("step=*.ckpt"), key=lambda path: int(path.stem[5:]))
    return int(saved.stem[5:]), str(saved)
