"""Tables that break programs: the cells read here and by pandas, compared with the true ones.

The true cells are read with Python's ``csv`` or ``json`` and a form (separator, encoding, lines
before the header) that is written here for each file. A cell is right as its text, as the number
that the text stands for, or as missing if it is empty. A digit string such as 00501 is text: the
number 501 is wrong.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .nasty import Answer, compare_readers, read_list, refused
from .tables import Result

Columns = dict[str, list[Any]]  # a cell is None where it is missing
MISSING = {"", "na", "n/a", "#n/a", "nan", "null"}


class Form(NamedTuple):
    """How to read the true cells of a file.

    Attributes:
        separator: One character.
        encoding: Of the file.
        lines: Lines before the header.
        grouped: Whether ``"1,234.50"``, ``$`` and ``%`` are parts of numbers.
        comma: Whether ``1,5`` is a number.
        names: Expected names of columns with a duplicate, blank or missing header.
        read: ``"table"``, or ``"text"`` for files of the text reader.
        message: Text that a message must contain; correct cells alone are not enough.
        useless: No model can be trained on it: an error that names the file is right too.
    """

    separator: str = ","
    encoding: str = "utf-8-sig"
    lines: int = 0
    grouped: bool = False
    comma: bool = False
    names: Mapping[int, str] = {}
    read: str = "table"
    message: str = ""
    useless: bool = False


FORMS = {
    "semicolon_decimal_comma.csv": Form(";", comma=True),
    "tab.tsv": Form("\t"),
    "tab_named.csv": Form("\t"),
    "pipe.csv": Form("|"),
    "latin1.csv": Form(encoding="latin-1"),
    "utf16.csv": Form(encoding="utf-16"),
    "dup_headers.csv": Form(names={6: "age_2"}),
    "blank_header.csv": Form(names={2: "unnamed_2"}),
    "index_column.csv": Form(names={0: "unnamed_0"}),
    "no_header.csv": Form(message="column_names="),
    "thousands.csv": Form(grouped=True),
    "currency_percent.csv": Form(grouped=True),
    "preamble.csv": Form(lines=3),
    "text_empty.tsv": Form("\t", read="text"),
    "text_long.tsv": Form("\t", read="text"),
    "array.json": Form(read="text"),
    "bom.jsonl": Form(read="text"),
    "text_crlf_quotes.jsonl": Form(read="text", useless=True),
    "header_only.csv": Form(useless=True),
    "empty.parquet": Form(useless=True),
}
# damaged: an error that names the file is right
REFUSED = {
    *("ragged_more.csv", "ragged_short.csv", "empty.csv", "newline_only.csv", "cut.parquet"),
    *("unclosed_quote.csv", "backslash_escape.csv", "bad_utf8.csv", "repeated_header.csv"),
}


def compare(folder: Path) -> Result:
    """Make a table with one row per file of ``folder/nasty_tables``."""
    return compare_readers(
        "Tables that break programs",
        _files(folder / "nasty_tables"),
        {"pandas": _pandas, "here": _here},
        judge,
        "Right: every cell is correct, or an error names the file.",
    )


def _files(folder: Path) -> Iterator[tuple[Path, str, tuple[Form, Columns | None]]]:
    for listed in read_list(folder / "TABLE.tsv"):
        path = folder / "made" / listed["file"]
        form = FORMS.get(path.name, Form())
        truth = None if path.name in REFUSED else true_cells(path, form)
        yield path, listed["what"].strip('"'), (form, truth)
    for path in sorted((folder / "csv_spectrum").glob("*.csv")):
        yield path, "csv-spectrum", (Form(), _as_listed(path))


def _as_listed(path: Path) -> Columns:
    """Return the cells that csv-spectrum lists for a file."""
    rows = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    rows = rows if isinstance(rows, list) else [rows]
    if path.stem == "location_coordinates":  # csv-spectrum lists another number than its file
        rows = [row | {"Contact Phone Number": "2095257564"} for row in rows]
    if path.stem == "newlines_crlf":  # its checkout converted the line ends of the file only
        rows = [{k: v.replace("\r\n", "\n") for k, v in row.items()} for row in rows]
    return {name: [row[name] for row in rows] for name in rows[0]}


def true_cells(path: Path, form: Form) -> Columns:
    """Read the cells of each column as text, with Python's own readers and a form."""
    if path.suffix == ".parquet" and path.name in ("penguins.parquet", "empty.parquet"):
        cells = true_cells(path.with_name("penguins.csv.gz"), form)  # the same table
        return {name: column * (path.stem != "empty") for name, column in cells.items()}
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(form.encoding)
    if path.suffix in (".json", ".jsonl"):
        lines = text.split("\n")[:-1]
        objects = json.loads(text) if text.lstrip()[0] == "[" else [*map(json.loads, lines)]
        named = dict.fromkeys(name for row in objects for name in row)
        return {name: [row.get(name) for row in objects] for name in named}
    stream = io.StringIO(text, newline="")
    for _ in range(form.lines):
        stream.readline()
    before = csv.field_size_limit(len(text) + 1)  # of the whole process
    try:
        header, *records = [r for r in csv.reader(stream, delimiter=form.separator) if r]
    finally:
        csv.field_size_limit(before)
    names = [form.names.get(i, name.strip()) for i, name in enumerate(header)]
    return {name: [record[i] for record in records] for i, name in enumerate(names)}


def judge(
    read: Callable[[Path, Form], tuple[Columns, str]],
    path: Path,
    expected: tuple[Form, Columns | None],
) -> Answer:
    """Read a file and compare each cell with the true one."""
    form, truth = expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found, notes = read(path, form)
        except Exception as error:
            return refused(error, path, whole=truth is not None and not form.useless)
    rows = len(next(iter(found.values()), ()))
    shape = f"{rows} x {len(found)}"
    if truth is None:
        return Answer(False, f"{shape} of a damaged file", silent=True)
    if form.message:
        reported = form.message in notes
        lost = "the first row became the header"
        text = f"{lost}, which is reported" if reported else lost
        return Answer(reported, text, silent=not reported)
    true_rows = len(next(iter(truth.values())))
    if len(found) != len(truth) or rows != true_rows:
        return Answer(False, f"{shape} for {true_rows} x {len(truth)}", silent=True)
    wrong = [
        (true, cell)
        for (name, cells), others in zip(truth.items(), found.values(), strict=True)
        for true, cell in zip(cells, found.get(name, others), strict=True)
        if not same(true, cell, form)
    ]
    if not wrong:
        return Answer(True, shape)
    true, cell = (repr(value)[:24] for value in wrong[0])
    return Answer(False, f"{len(wrong)} cells, such as {cell} for {true}", silent=True)


def same(true: Any, cell: Any, form: Form) -> bool:
    """Whether a cell equals the true one.

    Example:
        >>> same("00501", 501, Form()), same("7.250", 7.25, Form())
        (False, True)
        >>> same("1,5", 1.5, Form(comma=True)), same("", None, Form())
        (True, True)
    """
    if true is None or isinstance(true, list | dict):
        return bool(cell == true or (true is None and cell == ""))
    text = str(true)
    if cell is None:
        return text.strip().lower() in MISSING if form.read == "table" else not text
    if isinstance(cell, bool | str):
        return str(cell) == text or (isinstance(cell, bool) and str(cell).lower() == text.lower())
    if form.grouped:
        text = re.sub(r"[,$%]", "", text)
    if form.comma:
        text = text.replace(",", ".")
    code = re.match(r"[+-]?0\d|\+\d|[+-]?\d{16}", text)
    try:
        return code is None and float(text) == float(cell)
    except ValueError:
        return False


def _here(path: Path, form: Form) -> tuple[Columns, str]:
    if form.read == "text":
        from datamodules.texts.reader import read_texts

        texts = read_texts(path)
        assert texts.labels is not None
        labels = [texts.names[label] for label in texts.labels]
        return {"text": [*map(texts.texts.text, range(len(labels)))], "label": labels}, ""
    from datamodules.tables.table import read_table

    table = read_table(path)
    cells = {}
    for name in table.names:
        column = table.columns[name]
        if column.codes is None:
            assert column.numbers is not None
            cells[name] = [None if cell != cell else cell for cell in column.numbers.tolist()]
        else:
            cells[name] = [None if code < 0 else column.words[code] for code in column.codes]
    return cells, " ".join(table.notes)


def _pandas(path: Path, form: Form) -> tuple[Columns, str]:
    import pandas as pd

    if path.suffix == ".parquet":
        frame = pd.read_parquet(path)
    elif path.suffix in (".json", ".jsonl"):
        frame = pd.read_json(path, lines=path.suffix == ".jsonl")
    else:
        frame = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")
    cells = {}
    for place, name in enumerate(frame.columns):
        values: Sequence[Any] = frame.iloc[:, place].tolist()
        cells[str(name)] = [None if pd.isna(value) else value for value in values]
    return cells, ""
