from __future__ import annotations

import pytest
import sklearn.metrics as reference
import torch
from plain_data import Batches, Data
from torch import nn
from trainers import quiet_trainer

from datamodules.batches.batch import Batch
from models import Regressor

SIZES = {"num_numeric": 4, "cardinalities": []}


def trainer(tmp_path, **options):
    return quiet_trainer(default_root_dir=tmp_path, **{"max_epochs": 1, **options})


def batches(targets=None, n=21, size=5):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(n, 4, generator=generator)
    noise = torch.randn(n, targets or 1, generator=generator)
    target = inputs[:, : targets or 1] + noise / 3
    target = target[:, 0] if targets is None else target
    return [Batch(*pair) for pair in zip(inputs.split(size), target.split(size), strict=True)]


class Echo(nn.Module):
    """Values are the inputs' first columns; (N,) where there is one and it is asked for flat."""

    def __init__(self, targets=1, flat=False):
        super().__init__()
        self.targets, self.flat = targets, flat
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, inputs):
        values = inputs[:, : self.targets] * self.scale
        return values[:, 0] if self.flat else values


# Shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [4, 1])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_outputs_may_have_one_column_more_than_targets(tmp_path, rows, shape):
    values = torch.tensor([[1.0], [2.0], [3.0], [4.0]])[:rows]
    data = [Batch(values, values.reshape(shape))]
    model = Regressor(Echo(), num_targets=1)
    run = trainer(tmp_path)
    run.fit(model, Batches(*data), Batches(*data))
    for name in ("train_loss", "train_mae", "val_loss", "val_mae"):
        assert run.callback_metrics[name] == 0, name


# Sizes and scales ---------------------------------------------------------------------------


SCALE = {"mean": [250_000.0, -3.0], "std": [100_000.0, 0.5]}


def test_targets_and_their_scale_are_inferred_saved_and_loaded(tmp_path):
    data = Data(
        batches(2),
        num_targets=2,
        target_scale={"mean": torch.tensor(SCALE["mean"]), "std": torch.tensor(SCALE["std"])},
        input_sizes=SIZES,
        task="regression",
    )
    model = Regressor()
    run = trainer(tmp_path)
    run.fit(model, data)
    run.save_checkpoint(tmp_path / "run.ckpt")
    loaded = Regressor.load_from_checkpoint(tmp_path / "run.ckpt", weights_only=True)
    assert loaded.hparams["target_scale"] == SCALE
    assert loaded.hparams["num_targets"] == 2
    inputs = data.batches.batches[0].inputs
    model.eval()
    with torch.no_grad():
        expected = model(inputs) * torch.tensor(SCALE["std"]) + torch.tensor(SCALE["mean"])
        torch.testing.assert_close(loaded.eval().predict_step(inputs, 0), expected)


@pytest.mark.parametrize("targets", [None, 2])
def test_scores_in_original_units_agree_with_scikit_learn(tmp_path, targets):
    width = targets or 1
    scale = {name: values[:width] for name, values in SCALE.items()}
    data = batches(targets, n=101)
    model = Regressor(Echo(width), num_targets=width, target_scale=scale, loss="mae")
    [found] = trainer(tmp_path).test(model, Batches(*data), verbose=False)
    inputs = torch.cat([b.inputs for b in data]).double()[:, :width]
    target = torch.cat([b.target for b in data]).double().reshape(-1, width)
    mean, std = (torch.tensor(scale[name], dtype=torch.float64) for name in ("mean", "std"))
    predicted, true = inputs * std + mean, target * std + mean
    expected = {
        "test_loss": (inputs - target).abs().mean().item(),
        "test_mae": reference.mean_absolute_error(true, predicted),
        "test_rmse": reference.root_mean_squared_error(true, predicted),
        "test_r2": reference.r2_score(true, predicted),
    }
    assert found == pytest.approx(expected, rel=1e-6)


def test_training_metrics_are_those_of_the_whole_epoch(tmp_path):
    data = batches(n=11)
    scale = {"mean": [5.0], "std": [10.0]}
    model = Regressor(Echo(), num_targets=1, target_scale=scale, lr=0.0)
    run = trainer(tmp_path)
    run.fit(model, Batches(*data), Batches(*data))
    error = torch.cat([b.inputs[:, 0] - b.target for b in data])
    assert run.callback_metrics["train_loss"] == pytest.approx(error.square().mean().item())
    assert run.callback_metrics["train_mae"] == pytest.approx(10 * error.abs().mean().item())


@pytest.mark.parametrize("flat", [True, False])
def test_predictions_are_in_original_units(flat):
    inputs = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    scale = {"mean": [10.0], "std": [2.0]}
    model = Regressor(Echo(flat=flat), num_targets=1, target_scale=scale)
    found = model.predict_step(inputs, 0)
    assert (found.tolist(), found.dtype) == ([12.0, 16.0], torch.float32)
    multilabel = Regressor(Echo(2), num_targets=2, target_scale=SCALE)
    assert multilabel.predict_step(inputs, 0)[0].tolist() == [350_000.0, -2.0]


def test_a_loaded_model_scores_targets_with_another_scale(tmp_path):
    data = [Batch(torch.tensor([[1.0], [3.0]]), torch.tensor([11.0, 16.0]))]  # 12 and 16 predicted
    own = {"mean": [10.0], "std": [2.0]}
    model = Regressor(Echo(), num_targets=1, target_scale=own)
    [found] = trainer(tmp_path).test(model, Data(data, target_scale=None), verbose=False)
    assert found["test_mae"] == pytest.approx(0.5)
    assert found["test_loss"] == pytest.approx(0.125)  # on the network's own scale
    scaled = [Batch(data[0].inputs, data[0].target / 4 - 1)]
    other = Data(scaled, target_scale={"mean": [4.0], "std": [4.0]})
    [found] = trainer(tmp_path).test(model, other, verbose=False)
    assert found["test_mae"] == pytest.approx(0.5)


def test_a_saved_model_without_a_scale_ignores_that_of_new_data(tmp_path):
    model = Regressor(Echo(), num_targets=1)
    scale = {"mean": [10.0], "std": [2.0]}
    data = Data([Batch(torch.tensor([[12.0]]), torch.tensor([1.0]))], target_scale=scale)
    [found] = trainer(tmp_path).test(model, data, verbose=False)
    assert model.hparams["target_scale"] is None
    assert found["test_mae"] == 0


@pytest.mark.parametrize("data", [None, Data(batches())])
def test_an_unknown_number_of_targets_is_refused(tmp_path, data):
    with pytest.raises(ValueError, match=r"number of targets is unknown: .*pass num_targets="):
        trainer(tmp_path).test(Regressor(Echo()), data or Batches(*batches()), verbose=False)


def test_a_classification_datamodule_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"task is multilabel.*use Classifier"):
        trainer(tmp_path).fit(Regressor(), Data(batches(), task="multilabel"))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="loss must be one of mse, mae, huber, got 'hubert'"):
        Regressor(loss="hubert")
    model = Regressor(Echo(), num_targets=2, target_scale={"mean": [1.0], "std": [1.0]})
    with pytest.raises(ValueError, match="a value for each of 2 targets"):
        model.configure_model()


@pytest.mark.parametrize(("loss", "expected"), [("mse", 4.0), ("mae", 2.0), ("huber", 1.5)])
def test_each_loss_by_hand(tmp_path, loss, expected):
    data = [Batch(torch.tensor([[1.0], [3.0]]), torch.tensor([3.0, 1.0]))]
    model = Regressor(Echo(), num_targets=1, loss=loss)
    [found] = trainer(tmp_path).test(model, Batches(*data), verbose=False)
    assert found["test_loss"] == expected


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "bf16-mixed"])
def test_training_works_in_every_precision(tmp_path, precision):
    scale = {"mean": [5.0], "std": [10.0]}
    model = Regressor(input_sizes=SIZES, num_targets=1, target_scale=scale)
    run = trainer(tmp_path, precision=precision)
    run.fit(model, Data(batches()))
    assert all(value.isfinite() for value in run.callback_metrics.values())
    assert run.predict(model, Batches(*[b.inputs for b in batches()]))[0].dtype == torch.float32


def test_a_linear_target_is_learnt(tmp_path):
    torch.manual_seed(0)
    data = Data(batches(n=256, size=16), num_targets=1, input_sizes=SIZES)
    run = trainer(tmp_path, max_epochs=10)
    run.fit(Regressor(lr=3e-3), data)
    assert run.callback_metrics["val_r2"] > 0.8
