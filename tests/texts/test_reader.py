from __future__ import annotations

import gzip
import json
import pickle

import numpy as np
import polars as pl
import pytest

from datamodules.texts.reader import read_texts, sort_names

ROWS = [("red fox", "animal"), ("", "plant"), ("   ", "animal"), ('naïve 很快\n"q"', "plant")]


def texts_of(table):
    return table.texts.texts(0, len(table.texts))


def labels_of(table):
    return [table.names[k] for k in table.labels]


def write(path, rows=ROWS):
    names = ("text", "label")
    frame = pl.DataFrame(rows, schema=list(names), orient="row")
    if path.name.endswith(".parquet"):
        frame.write_parquet(path)
    elif ".jsonl" in path.name:
        frame.write_ndjson(path)
    else:
        frame.write_csv(path, separator="\t" if ".tsv" in path.name else ",")
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet", "A.CSV", "a.txt"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    path = write(tmp_path / name)
    table = read_texts(path)
    assert texts_of(table) == [text for text, _ in ROWS]
    assert labels_of(table) == [label for _, label in ROWS]
    assert table.names == ["animal", "plant"]
    assert table.labels.dtype == np.int64
    assert table.keys == [0, 1, 2, 3]
    assert table.digest() == read_texts(path).digest()


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz"])
def test_gzip_is_decompressed(tmp_path, name):
    plain = write(tmp_path / name.removesuffix(".gz"))
    (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes()))
    assert texts_of(read_texts(tmp_path / name)) == [text for text, _ in ROWS]
    (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes())[:-9])
    with pytest.raises(ValueError, match=name):
        read_texts(tmp_path / name)


def test_a_folder_has_one_file_per_text(tmp_path):
    for name, text in {
        "pos/a.txt": "good\n",
        "pos/deep/b": "fine",
        "neg/10.txt": "bad 很",
        "neg/.hidden": "x",
        "neg/Thumbs.db": "x",
        ".git/c.txt": "x",
        "__MACOSX/c.txt": "x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "readme.txt").write_text("no class")
    table = read_texts(tmp_path)
    assert texts_of(table) == ["bad 很", "good\n", "fine"]
    assert labels_of(table) == ["neg", "pos", "pos"]
    assert table.keys == [str(tmp_path / n) for n in ("neg/10.txt", "pos/a.txt", "pos/deep/b")]
    assert table.places()(2) == str(tmp_path / "pos" / "deep" / "b")
    flat = read_texts(tmp_path / "pos", label=None)
    assert texts_of(flat) == ["good\n", "fine"]
    with pytest.raises(ValueError, match=r"one folder for each class, it contains 1 file"):
        read_texts(tmp_path / "pos" / "deep")
    (tmp_path / "neg" / "image.txt").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(ValueError, match=r"image\.txt': line 1: byte 0xff is not utf-8"):
        read_texts(tmp_path)


@pytest.mark.parametrize(
    ("content", "options", "texts", "labels"),
    [
        ("ham\tOk lar\nspam\tFree\n", {"text": 1, "label": 0}, ["Ok lar", "Free"], ["ham", "spam"]),
        ("label,text\n1,a\n0,b\n", {}, ["a", "b"], ["1", "0"]),
        ("label,text\n1,a\n0,b\n", {"text": 1, "label": 0, "header": True}, ["a", "b"], ["1", "0"]),
        (" text ,label\nx,1\n", {}, ["x"], ["1"]),
        ("text;label\na,b;1\n", {}, ["a,b"], ["1"]),
        ("a,b|text|label\n0|x|1\n", {}, ["x"], ["1"]),
        ("text^label\nx^1\n", {"separator": "^"}, ["x"], ["1"]),
        (
            "NUM:dist How far ?\nHUM:ind Who ?\n",
            {"text": 1, "label": 0, "separator": " ", "label_pattern": "[^:]+"},
            ["How far ?", "Who ?"],
            ["NUM", "HUM"],
        ),
        (
            "text,label\nx,NUM:dist\n",
            {"label_pattern": r".*:(\w+)"},
            ["x"],
            ["dist"],
        ),
        ("text,label\nnan,NA\nNA,null\n", {}, ["nan", "NA"], ["NA", "null"]),
        ("text,label\nx,10\ny,9\n", {}, ["x", "y"], ["10", "9"]),
    ],
)
def test_columns_by_name_or_number(tmp_path, content, options, texts, labels):
    path = tmp_path / "a.csv"
    path.write_text(content)
    table = read_texts(path, **options)
    assert texts_of(table) == texts
    assert labels_of(table) == labels


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252"]
)
def test_encodings_with_a_byte_order_mark_are_detected_and_others_given(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_text("text,label\ncafé,1\n", encoding=encoding)
    given = encoding if encoding in ("latin-1", "cp1252") else None
    assert texts_of(read_texts(path, encoding=given)) == ["café"]
    if given:
        with pytest.raises(ValueError, match=r"line 2: byte 0xe9 is not utf-8; pass encoding="):
            read_texts(path)


def test_a_second_text_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"q": "who", "a": "me", "y": true}\n{"q": "why", "y": false}\n')
    table = read_texts(path, text="q", text_pair="a", label="y")
    assert table.pairs.texts(0, 2) == ["me", ""]
    assert table.names == ["False", "True"]


def test_label_types_of_parquet_become_names(tmp_path):
    frame = pl.DataFrame({"text": ["a", "b", "c"]})
    for values, names in (
        (pl.Series([10, 9, 10], dtype=pl.Int8), ["9", "10"]),
        (pl.Series([1.0, 0.0, 1.0]), ["0", "1"]),
        (pl.Series(["lo", "hi", "lo"], dtype=pl.Categorical), ["hi", "lo"]),
        (pl.Series([True, False, True]), ["False", "True"]),
    ):
        frame.with_columns(label=values).write_parquet(tmp_path / "a.parquet")
        table = read_texts(tmp_path / "a.parquet")
        assert table.names == names
        assert table.labels.tolist() in ([1, 0, 1], [0, 1, 0])


def test_places_of_rows_pickle_and_name_file_and_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"x\ny",1\nz,0\n')
    places = pickle.loads(pickle.dumps(read_texts(path).places()))
    assert places(1) == f"{path}, line 4"
    write(tmp_path / "a.parquet")
    assert read_texts(tmp_path / "a.parquet").places()(1).endswith("a.parquet, row 1")


def test_texts_to_predict_need_no_label(tmp_path):
    (tmp_path / "a.csv").write_text("text\none, or two\n42\n")
    assert texts_of(read_texts(tmp_path / "a.csv", label=None)) == ["one, or two", "42"]
    (tmp_path / "b.txt").write_text("one\n\ntwo\n")
    assert texts_of(read_texts(tmp_path / "b.txt", text=1, label=None)) == ["one", "", "two"]
    assert read_texts(tmp_path / "b.txt", text=0, label=None).labels is None


def test_whole_numbers_are_sorted_by_value():
    assert sort_names({"10", "9", "-1"}) == ["-1", "9", "10"]
    assert sort_names({"10", "9", "a"}) == ["10", "9", "a"]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.csv", "", {}, "has no rows"),
        ("a.csv", "text,label\n", {}, r"a\.csv' has no rows"),
        ("a.csv", "txet,label\nx,1\n", {}, "no column 'text' .* did you mean 'txet'.* 'label'"),
        (
            "a.csv",
            "ham,hi\nspam,ho\n",
            {},
            "a file without a header row are given by number",
        ),
        ("a.csv", "text,label\nx,1\n", {"text": 2, "label": 1}, "column 2 .* there are 2"),
        ("a.csv", "text,text,label\nx,y,1\n", {}, "2 columns are called 'text'"),
        ("a.csv", "text,label\nx,1\ny\n", {}, r"a\.csv': 1 ragged rows.*line 3 has 1"),
        ("a.csv", "text,label\n5,1\n7.5,0\n", {}, "column 'text' contains numbers such as '5'"),
        ("a.csv", "text,label\nx,0.5\ny,1\n", {}, "column 'label' contains numbers such as 0.5"),
        ("a.csv", "text,label\nx,1\ny,\nz,\n", {}, "no label in 2 of 3 rows: .*a.csv, line 3"),
        ("a.csv", "text,label\nx,1\n", {"encoding": "utf8x"}, "unknown encoding 'utf8x'"),
        ("a.csv", "text,label\nx,1\n", {"header": False}, "header=False needs columns by"),
        ("a.csv", "text,label\nx,a\n", {"label_pattern": r"\d"}, "'a' does not match label_pat"),
        ("a.jsonl", '{"text": "x", "label": 1}\nx\n', {}, "line 2 is not JSON"),
        ("a.jsonl", "[1, 2]\n", {}, "line 1 must be an object"),
        ("a.jsonl", '{"text": 5, "label": 1}\n', {}, r"must contain texts, .*line 1 has 5 \(int\)"),
        ("a.jsonl", '{"text": "x", "label": [1]}\n', {}, r"label is \[1\] \(list\)"),
        ("a.jsonl", '{"text": "x", "label": null}\n', {}, "no label in 1 of 1 rows"),
        ("a.jsonl", '{"text": "\\ud83d", "label": 1}\n', {}, "line 1: half of a surrogate pair"),
        ("a.jsonl", '{"texts": "x", "label": 1}\n', {}, "did you mean 'texts'"),
        ("a.parquet", "text,label\nx,1\n", {}, "the file is called Parquet but is not"),
        ("a.parquet", "PAR1xxxxxxxxxxxxxxxx", {}, "the Parquet file is damaged"),
    ],
)
def test_damaged_input_is_refused_with_its_place(tmp_path, name, content, options, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_texts(tmp_path / name, **options)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; pass a file or a folder"):
        read_texts(tmp_path / "no.csv")


def test_parquet_columns_that_are_not_texts_are_refused(tmp_path):
    frame = pl.DataFrame({"text": [1.5, 2.5], "label": [0, 1], "day": ["a", "b"]})
    frame.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"must contain texts, .*row 0 has 1\.5 \(float\)"):
        read_texts(tmp_path / "a.parquet")


TREC = {"text": 1, "label": 0, "separator": " "}
REAL = [
    ("sms_spam/sms.tsv", {"text": 1, "label": 0}, 5_574, 2),
    (
        "trec/TREC.train",
        {"text": 1, "label": 0, "separator": " ", "encoding": "latin-1"},
        5_452,
        50,
    ),
    ("trec/TREC.test", {**TREC, "label_pattern": "[^:]+"}, 500, 6),
    ("waimai_10k/waimai_10k.csv", {"text": "review"}, 11_987, 2),
    ("banking77/train.csv", {"label": "category"}, 10_003, 77),
    ("banking77/test.csv", {"label": "category"}, 3_080, 77),
    ("ag_news/test.csv", {"text": 1, "label": 0, "text_pair": 2}, 7_600, 4),
    ("sst2_tsv/train.tsv", {"text": 0, "label": 1}, 6_920, 2),
    ("sst2_tsv/test.tsv", {"text": 0, "label": 1}, 1_821, 2),
    ("uci_amazon_cells/amazon_cells_labelled.txt", {"text": 0, "label": 1}, 1_000, 2),
]


@pytest.mark.parametrize(("name", "options", "rows", "classes"), REAL, ids=lambda v: str(v)[:30])
def test_public_datasets_are_read_with_all_their_rows(data_dir, name, options, rows, classes):
    path = data_dir / "text" / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    table = read_texts(path, **options)
    assert len(table.texts) == rows
    assert len(table.names) == classes
    assert (table.texts.lengths() > 0).all()


def test_quotes_of_the_sms_dataset_are_kept(data_dir):
    path = data_dir / "text" / "sms_spam" / "sms.tsv"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    raw = path.read_text(encoding="utf-8").split("\n")[:-1]
    table = read_texts(path, text=1, label=0)
    assert [
        f"{label}\t{text}" for label, text in zip(labels_of(table), texts_of(table), strict=True)
    ] == raw
    assert np.bincount(table.labels).tolist() == [4_827, 747]


NASTY = [
    ("quotes_newlines.csv", {}, 4, "two\nlines"),
    ("stray_quote.csv", {}, 3, 'say "hi" now'),
    ("nul.csv", {}, 3, "\x00\x00"),
    ("text_empty.tsv", {}, 64, ""),
    ("text_long.tsv", {}, 42, None),
    ("array.json", {}, 2, "b"),
    ("bom.jsonl", {}, 1, None),
    ("unclosed_quote.csv", {}, "line 2: a quote opens and never closes", None),
    ("unclosed_quote.csv", {"quote": ""}, 3, "next"),
    ("backslash_escape.csv", {}, "line 2: text follows a closing quote", None),
    ("bad_utf8.csv", {}, "line 3: byte 0xff is not utf-8", None),
    ("bad_utf8.csv", {"encoding": "latin-1"}, 2, None),
    ("text_crlf_quotes.jsonl", {}, r"line 8 has 5 \(int\)", None),
    ("empty.csv", {}, "has no rows", None),
    ("newline_only.csv", {}, "has no rows", None),
    ("header_only.csv", {"text": "sex", "label": "survived"}, "has no rows", None),
    ("bom.csv", {"text": "sex", "label": "survived"}, 200, "female"),
    ("tab_named.csv", {"text": "sex", "label": "survived"}, 200, "female"),
    ("pipe.csv", {"text": "sex", "label": "survived"}, 200, "female"),
    ("crlf.csv", {"text": "sex", "label": "survived"}, 200, "female"),
    ("cr_only.csv", {"text": "sex", "label": "survived"}, 200, "female"),
    ("mixed_eol.csv", {"text": "sex", "label": "survived"}, 200, "female"),
    ("space_headers.csv", {"text": "sex", "label": "survived"}, 200, None),
    ("utf16.csv", {"text": "ville", "label": "achète"}, None, None),
    ("ragged_more.csv", {"text": "sex", "label": "survived"}, "line 51 has 17", None),
    (
        "ragged_short.csv",
        {"text": "sex", "label": "survived"},
        "15 fields, line 91 has 5",
        None,
    ),
    ("cut.parquet", {"text": "island", "label": "species"}, "the Parquet file is damaged", None),
    ("empty.parquet", {"text": "island", "label": "species"}, "has no rows", None),
    ("penguins.parquet", {"text": "island", "label": "species"}, 344, "Torgersen"),
    ("penguins.csv.gz", {"text": "island", "label": "species"}, 344, "Torgersen"),
    (
        "csv_named.parquet",
        {"text": "sex", "label": "survived"},
        "Parquet but is not",
        None,
    ),
]


@pytest.mark.parametrize(
    ("name", "options", "expected", "second"), NASTY, ids=lambda v: str(v)[:24]
)
def test_nasty_files_are_read_whole_or_refused(data_dir, name, options, expected, second):
    path = data_dir / "nasty_tables" / "made" / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            read_texts(path, **options)
        return
    table = read_texts(path, **options)
    if expected is not None:
        assert len(table.texts) == expected
    if second is not None:
        assert texts_of(table)[1] == second


def test_a_json_array_is_read_like_lines(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"text": "x", "label": 1}], indent=1))
    assert texts_of(read_texts(tmp_path / "a.json")) == ["x"]
