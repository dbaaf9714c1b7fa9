"""Damaged files of fixed seeds, in a process of their own: a crash of the interpreter is seen.

``python scripts/fuzz.py table --count 100000`` does more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import run_program

from datamodules.core.tables import read_table

FUZZ = Path(__file__).parent.parent / "scripts" / "fuzz.py"


@pytest.mark.parametrize("target", ["decode", "table"])
def test_every_damaged_file_is_read_or_refused_by_name(target):
    output = run_program("-W", "ignore", FUZZ, target, "--count", "2000", timeout=240)
    assert f"{target}: 2000 inputs from seed 0" in output


def test_a_byte_order_mark_before_other_bytes_than_utf_8_is_refused_by_name(tmp_path):
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n3,\xb2\xff\n")
    with pytest.raises(ValueError, match=r"marked\.csv is not utf-8.*byte 0xb2 in line 3"):
        read_table(tmp_path / "marked.csv")
