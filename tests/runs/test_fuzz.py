"""Damaged files of fixed seeds, in a process of their own: a crash of the interpreter is seen.

``python scripts/fuzz.py table --count 100000`` does more.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Program

from datamodules.tables.table import read_table

FUZZ = Path(__file__).parents[2] / "scripts" / "fuzz.py"
TARGETS = ("decode", "jpeg", "pack", "features", "table", "text", "labels", "parquet")


def test_every_damaged_file_is_read_or_refused_by_name():
    halves = [Program(FUZZ, *names, "--count", "2000") for names in (TARGETS[::2], TARGETS[1::2])]
    try:
        output = "\n".join(program.finished(240) for program in halves)
    finally:
        for program in halves:
            program.end()
    for target in TARGETS:
        found = re.search(rf"^{target}: 2000 inputs from seed 0: (.*)$", output, re.MULTILINE)
        counts = ast.literal_eval(found[1])
        assert set(counts) == {"read", "refused"}
        assert min(counts.values()) >= 50, "inputs are damaged too little or too much to tell"


FAULTY = """
import os, sys
sys.path.insert(0, {scripts!r})
import damaged_files, fuzz

def read(folder):
    exec(next(folder.iterdir()).name)

names = ["0", "os.abort()", "raise KeyError(1)", "raise ValueError(2)", "4"]
target = damaged_files.Target([{{name: b"x"}} for name in names], read, lambda error: False)
fuzz.TARGETS = {{"decode": lambda folder: target}}
sys.exit(fuzz.main())
"""


def test_crashes_and_unexpected_exceptions_are_counted_with_their_seeds(tmp_path):
    program = tmp_path / "faulty.py"
    program.write_text(FAULTY.format(scripts=str(FUZZ.parent)))
    command = [sys.executable, program, "decode", "--count", "5", "--seed", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode == 1
    assert "seed 1: the process ended with code -6" in ran.stdout
    assert "seed 2: KeyError: 1" in ran.stdout
    assert "seed 3: the error does not name the file: ValueError(2)" in ran.stdout
    counts = "{'crashed or hung': 1, 'file not named': 1, 'read': 2, 'unexpected error': 1}"
    assert ran.stdout.endswith(f"decode: 5 inputs from seed 0: {counts}\n")


def test_a_byte_order_mark_before_other_bytes_than_utf_8_is_refused_by_name(tmp_path):
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n3,\xb2\xff\n")
    with pytest.raises(ValueError, match=r"marked\.csv: line 3: byte 0xb2 is not utf-8"):
        read_table(tmp_path / "marked.csv")
