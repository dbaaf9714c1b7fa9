from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from contract import check_datamodule
from jsonargparse import ArgumentParser
from small_texts import make, make_rows, write

from datamodules.batches.batch import Batch, TextInputs
from datamodules.text import TextDataModule


def decoded(dm, ids):
    from tokenizers import Tokenizer

    return Tokenizer.from_str(dm.fitted["tokenizer"]).decode(ids.tolist()).strip()


@pytest.mark.runs
def test_it_keeps_the_contract_of_every_source(file):
    check_datamodule(lambda **options: make(file, **options), contexts=("fork", "spawn"))


def test_batches_hold_the_texts_and_labels_of_the_file(file):
    dm = make(file)
    rows = dict(make_rows())
    seen = {}
    for split in ("train", "val", "test"):
        for batch in dm.batches(split):
            assert isinstance(batch, Batch)
            assert isinstance(batch.inputs, TextInputs)
            for ids, mask, target in zip(*batch.inputs, batch.target, strict=True):
                seen[decoded(dm, ids[mask.bool()])] = dm.classes[target]
    assert seen == rows
    assert dm.classes == ["animal", "plant"]
    assert dm.class_counts == [24, 24]
    assert dm.input_sizes["pad_id"] == 0


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_is_as_wide_as_its_longest_text(file, side):
    dm = make(file, padding_side=side)
    dm.setup()
    lengths = dm.lengths("train")
    assert lengths.dtype == np.int64
    assert len(lengths) == 48
    widths, order = [], []
    loader = dm.train_dataloader()
    for keys, batch in zip(loader.sampler, loader, strict=True):
        ids, mask = batch.inputs
        assert ids.dtype == mask.dtype == batch.target.dtype == torch.int64
        own = lengths[keys.indices]
        assert mask.sum(1).tolist() == own.tolist()
        assert ids.shape[1] == own.max()
        assert (ids[mask == 0] == 0).all()
        assert (ids[mask == 1] != 0).all()
        edge = mask[:, -1] if side == "left" else mask[:, 0]
        assert (edge == 1).all()
        widths.append(ids.shape[1])
        order += keys.indices.tolist()
    assert sorted(order) == list(range(48))
    assert len(set(widths)) > 1


def test_only_train_rows_are_learnt_from(tmp_path):
    rows = make_rows()
    dm = make(write(tmp_path / "a.csv", rows))
    dm.setup()
    others = np.concatenate([dm._rows[split][1] for split in ("val", "test")])
    for i in others:
        rows[i] = ("entirely different words, " * 5, rows[i][1])
    other = make(write(tmp_path / "b.csv", rows))
    other.setup()
    assert other.fitted == dm.fitted
    assert other.split_fingerprint() != dm.split_fingerprint()
    for i in dm._rows["train"][1][:24]:
        rows[i] = ("qqqq zzzz " * 5, rows[i][1])
    third = make(write(tmp_path / "c.csv", rows))
    third.setup()
    assert third.fitted["tokenizer"] != dm.fitted["tokenizer"]


def test_parts_of_their_own(tmp_path):
    write(tmp_path / "train.csv", make_rows(40))
    write(tmp_path / "val.csv", make_rows(10, seed=1))
    write(tmp_path / "test.csv", make_rows(6, seed=2))
    dm = make(tmp_path / "train.csv", test_path=tmp_path / "test.csv")
    dm.setup()
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [36, 4, 6]
    dm = make(
        tmp_path / "train.csv", val_path=tmp_path / "val.csv", test_path=tmp_path / "test.csv"
    )
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [40, 10, 6]
    assert dm.val_dataset.describe(2) == f"{tmp_path / 'val.csv'}, line 4"
    with pytest.raises(ValueError, match="the source has a val split of its own"):
        make(tmp_path / "train.csv", val_path=tmp_path / "val.csv", val_split=0.2).setup()


def test_class_folders_under_train_and_test(tmp_path):
    for split, n in (("train", 20), ("test", 6)):
        for i, (text, label) in enumerate(make_rows(n)):
            folder = tmp_path / "data" / split / label
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i}.txt").write_text(text)
    dm = make(tmp_path / "data", predict_path=tmp_path / "data" / "test" / "plant")
    assert dm.classes == ["animal", "plant"]
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [18, 2, 6]
    assert [Path(key).name for key in dm.predict_keys] == ["1.txt", "3.txt", "5.txt"]


def test_a_class_that_train_lacks_is_an_error_or_dropped(tmp_path):
    write(tmp_path / "train.csv")
    write(tmp_path / "val.csv", [("old moss", "plant"), ("hi", "damson"), ("fox", "animal")])
    with pytest.raises(ValueError, match="'damson' is in val"):
        make(tmp_path / "train.csv", val_path=tmp_path / "val.csv").setup()
    dm = make(tmp_path / "train.csv", val_path=tmp_path / "val.csv", unknown_classes="drop")
    with pytest.warns(UserWarning, match="1 of 3 val samples dropped"):
        (batch,) = dm.val_dataloader()
    assert batch.target.tolist() == [1, 0]
    assert [decoded(dm, ids[ids > 0]) for ids in batch.inputs.input_ids] == ["old moss", "fox"]


def test_classes_can_be_given_in_an_order(file):
    dm = make(file, classes=["plant", "stone", "animal"])
    assert dm.class_to_idx == {"plant": 0, "stone": 1, "animal": 2}
    assert dm.class_counts == [24, 0, 24]
    with pytest.raises(ValueError, match="the class list lacks 'plant'"):
        make(file, classes=["animal", "stone"]).setup()


def test_second_texts_and_a_given_tokenizer(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "fox": 4, "tree": 5}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.csv").write_text(
        "a,b,label\n" + "fox,tree,0\ntree,,1\n,fox fox,0\n,,1\n" * 5, encoding="utf-8"
    )
    options = {"text": "a", "text_pair": "b", "tokenizer": tmp_path / "tokenizer.json"}
    dm = make(tmp_path / "a.csv", **options, val_split=0, test_split=0, sampler="sequential")
    batch = dm.preview("train")
    assert batch.inputs.input_ids[:4].tolist() == [
        [2, 4, 3, 5, 3],
        [2, 5, 3, 3, 0],
        [2, 3, 4, 4, 3],
        [2, 3, 3, 0, 0],
    ]
    assert dm.input_sizes == {"vocab_size": 6, "pad_id": 0}
    assert isinstance(dm.hparams["tokenizer"], str)


def test_what_is_cut_is_counted_and_said(file, caplog):
    dm = make(file, max_length=6)
    assert dm.truncated == {}
    full = make(file).lengths("train")
    with caplog.at_level("INFO"):
        lengths = dm.lengths("train")
    assert lengths.max() == 6
    assert np.array_equal(lengths, np.minimum(full, 6))
    assert dm.truncated["train"] == (full > 6).sum() > 0
    assert f"truncated to 6 tokens: train {(full > 6).sum()}" in str(dm)


def test_an_unstarted_module_says_so_and_reads_nothing(tmp_path):
    dm = make(tmp_path / "absent.csv")
    assert str(dm) == "TextDataModule(not set up; batch_size=8)"
    with pytest.raises(FileNotFoundError, match="absent"):
        dm.setup()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"vocab_size": 100}, "vocab_size must be at least 259"),
        ({"padding_side": "rigth"}, "did you mean 'right'"),
        ({"unknown_classes": "skip"}, "unknown_classes 'skip'"),
        ({"separator": "::"}, "separator must be one character"),
        ({"label_pattern": "("}, "is not a regular expression"),
        ({"classes": ["a", "a"]}, "a name twice"),
        ({"val_split": 1.5}, "at most 1"),
    ],
)
def test_bad_settings_are_refused_at_once(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path / "any.csv", **options)


def test_bad_columns_are_refused_by_name(file):
    with pytest.raises(ValueError, match="no column 'txet' for text=; did you mean 'text'"):
        make(file, text="txet").setup()
    with pytest.raises(ValueError, match="pass predict_path="):
        make(file).predict_dataloader()


def test_the_command_line_knows_every_option(file):
    parser = ArgumentParser()
    parser.add_class_arguments(TextDataModule, "data")
    arguments = ["--data.path", str(file), "--data.text", "0", "--data.target", "label"]
    parsed = parser.parse_args([*arguments, "--data.header", "true", "--data.batch_size", "17"])
    dm = parser.instantiate(parsed).data
    assert dm.hparams["text"] == 0
    assert dm.hparams["batch_size"] == 17
    assert len(dm.train_dataset) == 48
