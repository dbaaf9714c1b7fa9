from __future__ import annotations

import numpy as np
import pytest
import torch

from datamodules.tables import encode as encoding
from datamodules.tables.encode import pack
from datamodules.tables.features import fit_columns
from datamodules.tables.table import read_table


def read(tmp_path, text, name="t.csv"):
    (tmp_path / name).write_text(text)
    return read_table(tmp_path / name)


TRAIN = "x,g,c\n1,1,b\n3,,a\n5,3,b\n"


def fitted(tmp_path):
    table = read(tmp_path, TRAIN)
    return table, fit_columns(table, np.arange(3), table.names)[0]


def test_rows_are_scaled_flagged_and_indexed(tmp_path):
    table, features = fitted(tmp_path)
    packed, counts = pack(table, np.array([2, 1]), features)
    numeric, codes, target = packed.gather(np.arange(2))
    x = (np.array([5, 3]) - 3) / np.std([1, 3, 5])
    g = (np.array([3, 2]) - 2) / np.std([1, 2, 3])
    torch.testing.assert_close(numeric, torch.tensor(np.stack([x, g, [0, 1]], 1)).float())
    assert codes.tolist() == [[3], [2]]
    assert target is None
    assert (counts.unseen, counts.filled) == ({}, {})


def test_values_unseen_in_train_are_counted(tmp_path):
    _, features = fitted(tmp_path)
    new = read(tmp_path, "c,x,g,more\nz,,1,0\ny,1,,0\nz,2,2,0\n,2,2,0\n", "new.csv")
    packed, counts = pack(new, np.arange(4), features)
    numeric, codes, _ = packed.gather(np.arange(4))
    assert codes[:, 0].tolist() == [1, 1, 1, 0]
    assert numeric[0, 0] == 0  # the median
    assert numeric[:, 2].tolist() == [0, 1, 0, 0]
    assert counts.unseen == {"c": 2}  # z and y
    assert counts.cells == {"c": 3}
    assert counts.filled == {"x": 1, "c": 1}
    assert len(counts.notes("val")) == 2


def test_blocks_of_rows_give_the_same(tmp_path, monkeypatch):
    rows = "".join(f"{i % 7},{'' if i % 5 == 0 else i},{'abc'[i % 3]}\n" for i in range(50))
    table = read(tmp_path, "x,g,c\n" + rows)
    features = fit_columns(table, np.arange(30), table.names)[0]
    whole, counts = pack(table, np.arange(50), features)
    monkeypatch.setattr(encoding, "BLOCK", 7)
    parts, again = pack(table, np.arange(50), features)
    assert torch.equal(whole.buffer, parts.buffer)
    assert counts == again


def test_days_and_years_are_exact_in_float32(tmp_path):
    table = read(tmp_path, "t\n1700000000.25\n1700000000.5\n1700000000.75\n")
    features = fit_columns(table, np.arange(3), ["t"])[0]
    numeric, _, _ = pack(table, np.arange(3), features)[0].gather(np.arange(3))
    torch.testing.assert_close(numeric[:, 0], torch.tensor([-1.2247449, 0, 1.2247449]))


def test_a_later_file_may_write_categories_as_numbers_and_numbers_as_strings(tmp_path):
    table = read(tmp_path, "c,x\nb,1\n1,2\nb,3\n1,4\n")
    features = fit_columns(table, np.arange(4), ["c", "x"])[0]
    new = read(tmp_path, "c,x\n1,1\n2,2\n", "new.csv")
    assert pack(new, np.arange(2), features)[0].gather(np.arange(2))[1].tolist() == [[2], [1]]


def test_a_missing_column_and_words_for_numbers_are_refused(tmp_path):
    _, features = fitted(tmp_path)
    with pytest.raises(ValueError, match=r"new.csv has no column 'c' \(feature\)"):
        pack(read(tmp_path, "x,g\n1,2\n", "new.csv"), np.arange(1), features)
    with pytest.raises(ValueError, match=r"new.csv: 'x' has 1 cells that are not numbers: 'tall'"):
        pack(read(tmp_path, "x,g,c\n1,2,a\ntall,2,a\n", "new.csv"), np.arange(2), features)
    with pytest.raises(ValueError, match="is infinite in 1 rows"):
        pack(read(tmp_path, "x,g,c\ninf,2,a\n", "new.csv"), np.arange(1), features)
