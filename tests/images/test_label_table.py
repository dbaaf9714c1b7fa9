from __future__ import annotations

import gzip
import logging
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from image_files import solid

from datamodules.images.label_table import read_label_table


def images(root, *paths):
    for path in paths:
        solid(root / path, 0)
    return root


def read(root, content, name="labels.csv", **options):
    """Write a table beside the images and read it."""
    data = content if isinstance(content, bytes) else content.encode()
    (root / name).write_bytes(data)
    chosen = {"file_column": "image", "target": "breed", **options}
    return read_label_table(Path(name), root, **chosen)


def relative(table, root):
    return [Path(path).relative_to(root).as_posix() for path in table.paths]


def test_one_label_a_row_in_the_tables_order(tmp_path):
    images(tmp_path, "1.jpg", "2.jpg", "sub/3.jpg")
    table = read(tmp_path, "id,image,breed\n7,sub/3.jpg,pug\n8,1.jpg,collie\n9,2.jpg,pug\n")
    assert relative(table, tmp_path) == ["sub/3.jpg", "1.jpg", "2.jpg"]
    assert table.classes == ["collie", "pug"]
    assert table.labels.dtype == np.int64
    assert table.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "name", ["sub/3.jpg", "3.jpg", "sub/3", "3", "./sub/3.jpg", "sub//3.jpg", "sub\\3.jpg"]
)
def test_a_name_may_lack_ending_and_folders(tmp_path, name):
    images(tmp_path, "1.jpg", "sub/3.jpg")
    assert relative(read(tmp_path, f"image,breed\n{name},a\n"), tmp_path) == ["sub/3.jpg"]


def test_a_whole_path_under_root_is_a_name(tmp_path):
    images(tmp_path, "sub/3.jpg")
    table = read(tmp_path, f"image,breed\n{tmp_path}/sub/3.jpg,a\n")
    assert relative(table, tmp_path) == ["sub/3.jpg"]


@pytest.mark.parametrize("other", ["a/1.jpg", "z/1.jpg", "1.jpg.png", "1.png"])
def test_the_path_as_written_wins_over_what_looks_alike(tmp_path, other):
    images(tmp_path, "1.jpg", other)
    assert relative(read(tmp_path, "image,breed\n1.jpg,a\n"), tmp_path) == ["1.jpg"]


def test_a_name_of_two_files_is_refused(tmp_path):
    images(tmp_path, "a/1.jpg", "b/1.jpg")
    message = (
        r"labels.csv: 1 of 2 names in 'image' match no single image: '1' \(row 1\) matches two"
    )
    with pytest.raises(FileNotFoundError, match=message):
        read(tmp_path, "image,breed\na/1.jpg,x\n1,y\n")


def test_a_missing_file_is_named_with_its_row(tmp_path):
    images(tmp_path, "1.jpg", "2.jpg")
    message = r"2 of 3 names in 'image' .*'9.jpg' \(row 1\) matches no image under .* has 2 imag"
    with pytest.raises(FileNotFoundError, match=message):
        read(tmp_path, "image,breed\n1.jpg,x\n9.jpg,y\n8.jpg,y\n")


@pytest.mark.parametrize("again", ["1.jpg", "1", "./1.jpg"])
def test_a_image_named_twice_would_lie_in_two_splits(tmp_path, again):
    images(tmp_path, "1.jpg", "2.jpg")
    with pytest.raises(ValueError, match=r"twice \(rows 0 and 2\); several labels"):
        read(tmp_path, f"image,breed\n1.jpg,x\n2.jpg,y\n{again},y\n")


@pytest.mark.parametrize("row", ["2.jpg,", '2.jpg,""', ",y"])
def test_an_empty_cell_is_named(tmp_path, row):
    images(tmp_path, "1.jpg", "2.jpg")
    with pytest.raises(ValueError, match=r"1 rows without '(image|breed)', the first is row 1"):
        read(tmp_path, f"image,breed\n1.jpg,x\n{row}\n")


def test_an_unknown_column_gets_a_suggestion(tmp_path):
    images(tmp_path, "1.jpg")
    with pytest.raises(ValueError, match="no column 'breed'; did you mean 'breeds'\\? it has imag"):
        read(tmp_path, "image,breeds\n1.jpg,x\n")
    with pytest.raises(ValueError, match="no column 'file'; it has image, breed"):
        read(tmp_path, "image,breed\n1.jpg,x\n", file_column="file")


def test_several_labels_in_one_cell(tmp_path):
    images(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    content = "image,tags\n1.jpg,haze primary\n2.jpg,primary\n3.jpg,primary  haze\n"
    table = read(tmp_path, content, target="tags", label_separator=" ")
    assert table.classes == ["haze", "primary"]
    assert table.labels.tolist() == [[True, True], [False, True], [True, True]]


def test_several_labels_by_columns_keep_their_order(tmp_path):
    images(tmp_path, "1.jpg", "2.jpg")
    content = "image,z,a\n1.jpg,1,0\n2.jpg,True,1.0\n"
    table = read(tmp_path, content, target=["z", "a"])
    assert table.classes == ["z", "a"]
    assert table.labels.tolist() == [[True, False], [True, True]]


def test_a_target_that_is_no_flag_is_named(tmp_path):
    images(tmp_path, "1.jpg", "2.jpg")
    with pytest.raises(ValueError, match=r"column 'a' .* must contain 0 and 1, row 1 has '2'"):
        read(tmp_path, "image,z,a\n1.jpg,1,0\n2.jpg,0,2\n", target=["z", "a"])


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "T.TSV", "t.parquet"])
def test_csv_tsv_and_parquet_are_read_alike(tmp_path, name):
    import polars

    images(tmp_path, "007.jpg", "8.jpg")
    frame = polars.DataFrame({"image": ["007", "8"], "breed": [10, 9]})
    if name.endswith("parquet"):
        frame.write_parquet(tmp_path / name)
    else:
        frame.write_csv(tmp_path / name, separator="," if name.endswith("csv") else "\t")
    table = read(tmp_path, (tmp_path / name).read_bytes(), name=name)
    assert relative(table, tmp_path) == ["007.jpg", "8.jpg"]
    assert table.classes == ["10", "9"]
    assert table.labels.tolist() == [0, 1]


def test_nan_in_parquet_is_a_missing_label(tmp_path):
    import polars

    images(tmp_path, "1.jpg", "2.jpg")
    frame = polars.DataFrame({"image": ["1", "2"], "breed": [1.0, float("nan")]})
    frame.write_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="1 rows without 'breed', the first is row 1"):
        read(tmp_path, (tmp_path / "t.parquet").read_bytes(), name="t.parquet")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfimage,breed\na.jpg,NA\nNA.jpg,x\n",
        b"image,breed\r\na.jpg,NA\r\nNA.jpg,x\r\n",
        b'"image","breed"\n"a.jpg","NA"\n"NA.jpg","x"\n',
        b"image,breed\na.jpg,NA\nNA,x\n",
        b"image,breed\na.jpg,NA\nNA.jpg,x",
    ],
    ids=["byte-order mark", "CRLF", "quoted", "a file called NA", "no last newline"],
)
def test_csv_in_its_many_hands(tmp_path, content):
    images(tmp_path, "a.jpg", "NA.jpg")
    table = read(tmp_path, content)
    assert relative(table, tmp_path) == ["a.jpg", "NA.jpg"]
    assert table.classes == ["NA", "x"]


def test_commas_quotes_and_newlines_in_cells(tmp_path):
    images(tmp_path, 'a, "b".jpg', "c\nd.jpg")
    table = read(tmp_path, 'image,breed\n"a, ""b"".jpg","x, y"\n"c\nd.jpg","x\ny"\n')
    assert relative(table, tmp_path) == ['a, "b".jpg', "c\nd.jpg"]
    assert table.classes == ["x\ny", "x, y"]


def test_accents_are_found_in_one_piece_or_two(tmp_path):
    two, one = unicodedata.normalize("NFD", "café.jpg"), unicodedata.normalize("NFC", "café.jpg")
    images(tmp_path, two)
    assert relative(read(tmp_path, f"image,breed\n{one},x\n"), tmp_path) == [two]
    images(tmp_path, one)
    if len(list(tmp_path.glob("*.jpg"))) == 2:
        table = read(tmp_path, f"image,breed\n{one},x\n{two},x\n")
        assert relative(table, tmp_path) == [one, two]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,breed\na.jpg,caf\xe9\n".encode("latin-1"), "invalid utf-8.*; save it as UTF-8"),
        (b"image,breed\na.jpg,x,y\n", "cannot be read as a table: found more fields"),
        (b"image,breed\n", "a header and no rows"),
        (b"", "cannot be read as a table: empty CSV"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(tmp_path, content, message):
    images(tmp_path, "a.jpg")
    with pytest.raises(ValueError, match=rf"labels.csv.*{message}"):
        read(tmp_path, content)


@pytest.mark.parametrize("name", ["t.xlsx", "train.csv.zip", "table"])
def test_a_table_of_another_kind_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=rf"must end in one of .csv, .*, got '{name}'"):
        read(tmp_path, b"PK", name=name)


def test_a_compressed_table_is_read(tmp_path):
    images(tmp_path, "1.jpg")
    content = gzip.compress(b"image\tbreed\n1.jpg\tpug\n")
    assert read(tmp_path, content, name="t.tsv.gz").classes == ["pug"]


def test_another_separator_is_suspected(tmp_path):
    images(tmp_path, "1.jpg")
    with pytest.raises(ValueError, match=r"is it separated by commas .* it has image;breed"):
        read(tmp_path, "image;breed\n1.jpg;pug\n")


def test_a_broken_parquet_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"t.parquet cannot be read as a table"):
        read(tmp_path, b"image,breed\na,b\n", name="t.parquet")


def test_a_missing_table_says_where_it_was_looked_for(tmp_path):
    images(tmp_path, "a.jpg")
    (tmp_path / "train.csv").write_text("")
    message = r"'trian.csv' exists neither under root nor in the working .* \(a.jpg, train.csv\)"
    with pytest.raises(FileNotFoundError, match=message):
        read_label_table(Path("trian.csv"), tmp_path, file_column="a", target="b")


def test_a_table_may_lie_outside_the_root(tmp_path, monkeypatch):
    images(tmp_path, "photos/a.jpg")
    (tmp_path / "t.csv").write_text("image,breed\na.jpg,x\n")
    monkeypatch.chdir(tmp_path)
    for table in ("t.csv", tmp_path / "t.csv", "../t.csv"):
        found = read_label_table(
            Path(table), tmp_path / "photos", file_column="image", target="breed"
        )
        assert found.classes == ["x"]


def test_images_that_the_table_leaves_out_are_counted(tmp_path, caplog):
    images(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    with caplog.at_level(logging.INFO):
        read(tmp_path, "image,breed\na.jpg,x\n")
    assert "2 of 3 images are not in labels.csv" in caplog.text
