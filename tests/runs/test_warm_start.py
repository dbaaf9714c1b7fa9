"""What runs the programs of other tests sees that they fail, hang or leave a child."""

from __future__ import annotations

import pytest
from warm_start import run_warm


@pytest.fixture
def program(tmp_path):
    def written(text):
        (tmp_path / "program.py").write_text(text)
        return tmp_path / "program.py"

    return written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise KeyError('of its own')", r"exit codes \[1\]:(?s:.*)KeyError: 'of its own'"),
        ("import time; print('begun', flush=True); time.sleep(99)", "not finished(?s:.*)begun"),
        ("import os, time\nif os.fork() == 0: time.sleep(99)", "children left"),
    ],
)
def test_a_program_that_fails_hangs_or_leaves_a_child_is_reported(program, text, said):
    with pytest.raises(AssertionError, match=said):
        run_warm(program(text), timeout=2 if "begun" in text else 60)


def test_a_failing_rank_is_reported_although_the_other_succeeds(program):
    text = "import os, sys; sys.exit(int(os.environ['LOCAL_RANK']) * 3)"
    with pytest.raises(AssertionError, match=r"exit codes \[(0, 3|3, 0)\]"):
        run_warm(program(text), ranks=2)


def test_ranks_differ_in_the_hashes_of_strings_and_get_their_arguments(program):
    text = "import os, sys; print(os.environ['LOCAL_RANK'], sys.argv[1], hash('a'), flush=True)"
    lines = [line.split() for line in run_warm(program(text), "x y", ranks=2).splitlines()]
    assert sorted(line[:3] for line in lines) == [["0", "x", "y"], ["1", "x", "y"]]
    assert lines[0][3] != lines[1][3]
