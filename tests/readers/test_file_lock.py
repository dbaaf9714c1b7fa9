from __future__ import annotations

import signal

import pytest
from processes import Program

from datamodules.readers.file_lock import sole_writer

HOLD = """
import sys, time
from pathlib import Path
from datamodules.readers.file_lock import sole_writer

with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_file_is_removed_after_writing_and_after_an_error(tmp_path):
    target = tmp_path / "x.pack"
    with sole_writer(target):
        assert (tmp_path / "x.pack.lock").exists()
    with pytest.raises(OSError, match="disk full"), sole_writer(target):
        raise OSError("disk full")
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_of_the_same_pack_is_refused_and_another_pack_is_free(tmp_path):
    message = r"another process is writing the pack '.*x\.pack'; wait until it has finished"
    with sole_writer(tmp_path / "x.pack"):
        with pytest.raises(RuntimeError, match=message), sole_writer(tmp_path / "x.pack"):
            pass
        with sole_writer(tmp_path / "y.pack"):
            pass


@pytest.mark.runs
def test_a_killed_writer_releases_its_lock(tmp_path):
    target = tmp_path / "x.pack"
    program = Program("-c", HOLD, target)
    try:
        assert program.process.stdout.readline() == "held\n"
        with pytest.raises(RuntimeError, match="another process is writing"), sole_writer(target):
            pass
        program.process.send_signal(signal.SIGKILL)
        program.process.wait(30)
        with sole_writer(target):
            pass
    finally:
        program.end()
