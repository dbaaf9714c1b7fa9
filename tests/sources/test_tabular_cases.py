from __future__ import annotations

import gc
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
from contract import tensors
from people_table import made, trainer, write
from warm_start import run_warm

from datamodules.tabular import TabularDataModule
from models import Classifier, Regressor


def rows_of(dm, split="train"):
    return dm._parts[split].rows.tolist()


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


@pytest.mark.runs
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
    dm = TabularDataModule(cases_dir / "tab_leak.csv", "label", split_options={"column": "part"})
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
