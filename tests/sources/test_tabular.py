from __future__ import annotations

import io
import json
import os
import pickle
import warnings
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from contract import check_datamodule, same
from people_table import made, trainer, write
from warm_start import run_warm

from datamodules.batches.batch import TabularInputs
from datamodules.loading.fetch import KeyedDataset
from datamodules.tabular import TabularDataModule
from models import Classifier, Regressor

PROGRAM = Path(__file__).parents[1] / "helpers" / "table_ranks.py"


@pytest.mark.parametrize("encode", ["codes", "onehot"])
def test_the_contract_of_every_source_holds(people, encode):
    check_datamodule(lambda **options: made(people, encode=encode, **options))


@pytest.mark.runs
@pytest.mark.timeout(280)
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_start_afresh_give_the_same_batches(people, context):
    options = {"multiprocessing_context": context, "persistent_workers": False}
    loaded = made(people, batch_size=8, num_workers=2, loader_options=options)
    plain = made(people, batch_size=8)
    assert same(list(loaded.train_dataloader()), list(plain.train_dataloader()))


def test_a_batch_is_numbers_codes_and_classes(people):
    dm = made(people, batch_size=7)
    inputs, target = dm.preview()
    assert isinstance(inputs, TabularInputs)
    assert (inputs.numeric.shape, inputs.numeric.dtype) == ((7, 3), torch.float32)
    assert (inputs.categorical.shape, inputs.categorical.dtype) == ((7, 2), torch.int64)
    assert (target.shape, target.dtype) == ((7,), torch.int64)
    assert dm.input_sizes == {"num_numeric": 3, "cardinalities": [5, 4]}
    assert dm.feature_names == ["x", "age", "age missing"]
    assert dm.categorical_names == ["kind", "flag"]
    assert (dm.classes, dm.num_classes, dm.task) == (["0", "1", "2"], 3, "multiclass")
    assert dm.class_counts == [12, 12, 12]
    assert "features: 2 numbers, 1 missing flags, 2 categories" in str(dm)


def test_without_categories_or_by_one_hot_inputs_are_one_tensor(people):
    plain = made(people, drop=["pay", "kind", "flag"], batch_size=7)
    assert plain.preview().inputs.shape == (7, 3)
    dm = made(people, encode="onehot", batch_size=7)
    codes = made(people, batch_size=7).preview("val").inputs
    inputs = dm.preview("val").inputs
    assert inputs.shape == (7, 8)
    assert dm.input_sizes == {"num_numeric": 8, "cardinalities": []}
    assert dm.feature_names[3:] == ["kind=a", "kind=b", "kind=c", "flag=False", "flag=True"]
    assert torch.equal(inputs[:, :3], codes.numeric)
    assert torch.equal(inputs[:, 3:6].argmax(1) + 2, codes.categorical[:, 0])
    assert (inputs[:, 3:].sum(1) == 2).all()


def test_columns_with_a_part_of_their_own_are_no_features(people):
    rows = [
        [f"p{i}", i // 2, ("train", "val", "test")[i % 3], i * 1.5, i % 2, i % 2] for i in range(30)
    ]
    path = write(people.parent / "t.csv", rows, "id,who,part,x,z,label")
    dm = TabularDataModule(
        path, "label", id_column="id", split_options={"column": "part"}, drop=["z", "who"]
    )
    assert dm.feature_names == ["x"]
    assert dm.val_dataset.describe(0) == "row 1 of t.csv, id p1"
    assert [len(d) for d in (dm.train_dataset, dm.val_dataset, dm.test_dataset)] == [10, 10, 10]


def test_a_group_stays_on_one_side(people):
    rows = [[f"g{i % 10}", i * 0.5, i // 10 % 2] for i in range(60)]
    path = write(people.parent / "t.csv", rows, "who,x,label")
    dm = TabularDataModule(
        path, "label", split_options={"group": "who"}, val_split=0.2, test_split=0.3
    )
    dm.setup()
    groups = {s: {int(i) % 10 for i in part.rows} for s, part in dm._parts.items()}
    assert [len(groups[s]) for s in ("train", "val", "test")] == [5, 2, 3]
    assert not groups["train"] & groups["val"]
    assert not groups["test"] & (groups["train"] | groups["val"])


def test_regression_has_one_target_or_several(people):
    dm = TabularDataModule(people, "pay", drop=["id"], batch_size=5)
    assert (dm.preview().target.shape, dm.preview().target.dtype) == ((5,), torch.float32)
    assert (dm.task, dm.num_targets, dm.target_scale) == ("regression", 1, None)
    assert len(dm.train_dataset[0][1].shape) == 0
    multilabel = TabularDataModule(
        people, ["pay", "x"], drop=["id"], batch_size=5, target_scaling=True
    )
    batches = list(multilabel.train_dataloader())
    target = torch.cat([b.target for b in batches])
    assert target.shape == (48, 2)
    assert multilabel.num_targets == 2
    torch.testing.assert_close(target.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(target.std(0, correction=0), torch.ones(2))
    scale = multilabel.target_scale
    assert scale["mean"][0] == pytest.approx(float(np.mean([i / 4 for i in rows_of(multilabel)])))


def rows_of(dm, split="train"):
    return dm._parts[split].rows.tolist()


def test_several_labels(people):
    rows = [[i * 0.5, i % 2, int(i % 3 == 0), "|".join("ab"[: i % 3])] for i in range(30)]
    path = write(people.parent / "t.csv", rows, "x,cat,dog,tags")
    dm = TabularDataModule(path, ["cat", "dog"], drop=["tags"])
    assert (dm.preview().target.shape, dm.preview().target.dtype) == ((24, 2), torch.float32)
    assert (dm.task, dm.classes) == ("multilabel", ["cat", "dog"])
    cells = TabularDataModule(path, "tags", drop=["cat", "dog"], label_separator="|")
    cells.setup()
    assert (cells.task, cells.classes) == ("multilabel", ["a", "b"])


def test_the_test_file_of_train_and_test_files_is_not_cut(people):
    other = write(people.parent / "test.csv", [[0.5, 40, "a", True, 1]], "x,age,kind,flag,label")
    dm = TabularDataModule(people, "label", drop=["pay", "id"], test_path=other)
    dm.setup()
    assert (len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)) == (54, 6, 1)
    with pytest.raises(
        ValueError, match=r"test_split=0.1 was given, but the source has a test split"
    ):
        TabularDataModule(people, "label", test_path=other, test_split=0.1).setup()


def test_it_pickles_before_and_after_setup(people):
    dm = made(people)
    assert same(list(pickle.loads(pickle.dumps(dm)).val_dataloader()), list(dm.val_dataloader()))
    assert same(list(pickle.loads(pickle.dumps(dm)).val_dataloader()), list(dm.val_dataloader()))


def test_no_warning_escapes_on_clean_data(people, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dm = made(people, batch_size=8)
        for split in ("train", "val", "test"):
            list(dm.batches(split))
        str(dm)


def test_predict_keys_are_ids_or_rows(people):
    dm = made(people, predict_path=people, batch_size=8)
    assert dm.predict_keys == [f"p{i}" for i in range(60)]
    assert made(people, predict_path=people, id_column=None, drop=["id"]).predict_keys == list(
        range(60)
    )
    inputs = list(dm.predict_dataloader())
    assert isinstance(inputs[0], TabularInputs)
    rows = made(people, predict_path=people, with_rows=True, batch_size=8).predict_dataloader()
    assert torch.cat([b.rows for b in rows]).tolist() == list(range(60))


def test_predict_needs_no_target_and_takes_more_columns_in_any_order(people, tmp_path):
    new = write(tmp_path / "new.csv", [["True", 1, "c", 0.5, 99, "n1"]], "flag,k,kind,x,age,id")
    dm = made(people, predict_path=new)
    assert dm.preview("predict").categorical.tolist() == [[4, 3]]
    assert dm.predict_keys == ["n1"]


def test_a_second_setup_reads_nothing(people, monkeypatch):
    dm = made(people)
    dm.setup("fit")
    monkeypatch.setattr("datamodules.tabular.read_table", None)
    dm.setup("fit")
    dm.setup("test")
    assert len(list(dm.test_dataloader())) == 1


def test_nothing_of_the_reader_is_left_after_reading(people):
    dm = made(people, predict_path=people)
    dm.setup("fit")
    dm.setup("predict")
    assert b"polars" not in pickle.dumps(dm)


@pytest.mark.parametrize("changed", ["val", "test"])
def test_nothing_is_learnt_from_other_rows(tmp_path, changed):
    rows = [[i * 0.5, "ab"[i % 2], ("train", "val", "test")[i % 3], i % 2] for i in range(30)]
    first = TabularDataModule(
        write(tmp_path / "a.csv", rows, "x,c,part,label"), "label", split_options={"column": "part"}
    )
    strange = iter(["007", "", "NA", "1e9", "12345678901234567890"] * 9)
    for row in rows:
        if row[2] == changed:
            row[0], row[1], row[3] = next(strange), "z", row[3] + 0.0
    second = TabularDataModule(
        write(tmp_path / "b.csv", rows, "x,c,part,label"), "label", split_options={"column": "part"}
    )
    first.setup()
    second.setup()
    assert first.fitted == second.fitted


def test_fitted_state_loads_with_weights_only(people, tmp_path):
    dm = made(people)
    dm.setup()
    torch.save(dm.state_dict(), tmp_path / "s.pt")
    assert torch.load(tmp_path / "s.pt", weights_only=True)["fitted"] == dm.fitted
    assert json.loads(json.dumps(dm.fitted)) == dm.fitted


def test_a_state_replaces_what_was_fitted(people, tmp_path):
    dm = made(people)
    dm.setup()
    head = people.read_text().splitlines()
    (tmp_path / "less.csv").write_text("\n".join(line for line in head if ",c," not in line) + "\n")
    other = made(tmp_path / "less.csv")
    other.setup()
    assert other.cardinalities == [4, 4]
    other.load_state_dict(dm.state_dict())
    assert other.cardinalities == [5, 4]
    assert other.classes == ["0", "1", "2"]
    assert set(other.preview("val").inputs.categorical[:, 0].tolist()) <= {2, 3}


def test_numbers_to_be_predicted_are_read_as_train_wrote_them(tmp_path):
    rows = "".join(f"{i}.000,5;{i % 2}\n" for i in range(1, 11))
    (tmp_path / "t.csv").write_text("x;label\n" + rows)
    (tmp_path / "new.csv").write_text("x;label\n1.234;0\n")
    dm = TabularDataModule(tmp_path / "t.csv", "label", predict_path=tmp_path / "new.csv")
    dm.setup("fit")
    fresh = TabularDataModule(tmp_path / "absent.csv", "label", predict_path=tmp_path / "new.csv")
    fresh.setup("predict")  # read before the state is known, as Trainer.predict(ckpt_path=) does
    fresh.load_state_dict(dm.state_dict())
    feature = dm.fitted["features"][0]
    for each in (dm, fresh):
        value = each.preview("predict")[0, 0].item() * feature["std"] + feature["mean"]
        assert value == pytest.approx(1234)


@pytest.mark.runs
@pytest.mark.timeout(280)
def test_two_processes_see_what_one_sees(tmp_path):
    rows = [[i, i * 0.5 % 7, "abc"[i % 3], i % 2] for i in range(101)]
    write(tmp_path / "train.csv", rows, "row_,x,c,label")
    write(tmp_path / "new.csv", rows[:7], "row_,x,c,label")
    found = {}
    for world in (1, 2):
        output = run_warm(PROGRAM, str(world), tmp_path, "4", ranks=world, PYTHONPATH=path_here())
        found[world] = [json.loads(line[5:]) for line in output.split("\n") if line[:5] == "SEEN "]
        assert len(found[world]) == world
    [one], two = found[1], found[2]
    assert all(rank[2:] == one[2:] for rank in two), "split or fitted state differ"
    for split in ("val", "test", "predict"):
        assert sorted(two[0][1][split] + two[1][1][split]) == one[1][split], split
    together = sorted(two[0][1]["train"] + two[1][1]["train"])
    assert set(together) == set(one[1]["train"])
    assert len(together) == len(one[1]["train"]) == 61


def path_here():
    root = str(Path(__file__).parents[2])
    return os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])


def test_a_classifier_and_a_regressor_learn_from_it(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(400):
        x, c = rng.normal(), "ab"[i % 2]
        rows.append(
            [round(float(x), 5), c, int(x > 0) if c == "a" else int(x < 0), round(3 * x, 5)]
        )
    path = write(tmp_path / "t.csv", rows, "x,c,label,y")
    torch.manual_seed(0)
    dm = TabularDataModule(path, "label", drop=["y"], val_split=0.2, test_split=0.2, seed=0)
    run = trainer(tmp_path, max_epochs=15)
    model = Classifier(lr=0.01)
    run.fit(model, dm)
    assert run.test(model, dm, verbose=False)[0]["test_accuracy"] > 0.9
    dm = TabularDataModule(path, "y", drop=["label"], target_scaling=True, seed=0)
    run = trainer(tmp_path, max_epochs=15)
    model = Regressor(lr=0.01)
    run.fit(model, dm)
    [found] = run.test(model, dm, verbose=False)
    assert found["test_r2"] > 0.9
    assert found["test_rmse"] < 1


def test_a_plain_module_takes_the_batches(people, tmp_path):
    dm = made(people, encode="onehot", batch_size=8)
    layer = torch.nn.Linear(dm.input_sizes["num_numeric"], dm.num_classes)
    for x, y in dm.train_dataloader():
        torch.nn.functional.cross_entropy(layer(x), y).backward()


def test_a_spawned_worker_gets_the_encoded_rows_alone():
    frame = pl.DataFrame({"a": np.random.default_rng(0).random(50_000), "y": [0, 1] * 25_000})
    dm = TabularDataModule(frame, "y", batch_size=32)
    keyed = KeyedDataset(dm.train_dataset)
    sent = io.BytesIO()
    ForkingPickler(sent, pickle.HIGHEST_PROTOCOL).dump(keyed)  # tensors go by shared memory
    assert len(sent.getvalue()) < 10_000
    rows = pickle.loads(pickle.dumps(keyed)).__getitems__([0, 5])
    assert torch.equal(rows.inputs, keyed.__getitems__([0, 5]).inputs)
    assert dm.train_dataset.sample(0).cells, "this process keeps the cells"
