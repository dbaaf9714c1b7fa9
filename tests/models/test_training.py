from __future__ import annotations

import inspect
import json
import math
import os
from pathlib import Path
from typing import get_type_hints

import lightning as L
import model_ranks
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from model_ranks import Batches, Data, rows, trainer
from torch import nn
from trainers import quiet_trainer
from warm_start import run_warm

from models import Classifier, Regressor
from models.arguments import TrainingOptions
from models.training import TrainingModule, bare_inputs

SIZES = model_ranks.SIZES
PROGRAM = Path(model_ranks.__file__)


def classifier(**options):
    return Classifier(num_classes=3, input_sizes=SIZES, **options)


def fit(tmp_path, model, **options):
    run = trainer(1, tmp_path, **{"max_epochs": 2, "limit_val_batches": 0, **options})
    run.fit(model, Data(rows("multiclass")))
    return run


# Two processes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_ranks(tmp_path_factory):
    """What each of two ranks found, and what one process finds."""
    root = str(PROGRAM.parent.parent)
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    folder = tmp_path_factory.mktemp("ranks")
    output = run_warm(PROGRAM, "2", folder, ranks=2, timeout=200, PYTHONPATH=path)
    lines = [line[5:] for line in output.splitlines() if line.startswith("SEEN ")]
    assert len(lines) == 2
    alone = model_ranks.scores(1, tmp_path_factory.mktemp("alone"))
    return [found for _, found in sorted(map(json.loads, lines))], alone


@pytest.mark.runs
@pytest.mark.timeout(300)
@pytest.mark.parametrize("by_turns", [True, False], ids=["by turns", "one rank without a batch"])
@pytest.mark.parametrize("task", ["multiclass", "multilabel", "regression"])
def test_scores_of_an_odd_number_of_rows_are_equal_on_two_processes(on_ranks, task, by_turns):
    ranks, alone = on_ranks
    expected = alone[f"{task} {by_turns}"]
    for rank in ranks:
        found = dict(rank["scores"][f"{task} {by_turns}"])
        if task != "regression":
            assert found["confusion"] == expected["confusion"]
            total = torch.tensor(found.pop("confusion")).sum()
            assert total == model_ranks.ROWS * (3 if task == "multilabel" else 1)
        assert len(found) == (4 if task == "regression" else 5)
        assert found == pytest.approx({name: expected[name] for name in found}, rel=1e-6)


@pytest.mark.timeout(300)
def test_a_backbone_unfreezes_at_its_epoch_on_both_ranks(on_ranks):
    ranks, _ = on_ranks
    for rank in ranks:
        # epoch, backbone has moved, its batch norm trains, ranks agree
        assert rank["tuned"]["whole"] == [
            [0, False, False, True],
            [1, True, True, True],
            [2, True, True, True],
        ]
        assert rank["tuned"]["resumed"] == [[2, True, True, True]]
        assert rank["tuned"]["steps"] == 12
    assert ranks[0]["tuned"]["train_loss"] == ranks[1]["tuned"]["train_loss"]


# Freezing on one process --------------------------------------------------------------------


def test_a_frozen_backbone_keeps_its_weights_and_batch_norms(tmp_path):
    net = model_ranks.net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fit(tmp_path, Classifier(net, num_classes=3, freeze_backbone=True, lr=0.1))
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]) == (not name.startswith("3.")), name


def test_a_backbone_unfreezes_at_its_epoch_and_after_a_resume(tmp_path):
    found = model_ranks.fine_tune(1, tmp_path)
    assert found["whole"] == [
        [0, False, False, True],
        [1, True, True, True],
        [2, True, True, True],
    ]
    assert found["resumed"] == [[2, True, True, True]]


def test_a_frozen_backbone_can_be_fitted_twice(tmp_path):
    model = Classifier(model_ranks.net(), num_classes=3, freeze_backbone=True)
    fit(tmp_path, model)
    fit(tmp_path, model)
    assert [m.training for m in model.net] == [False, False, False, True]


def test_the_backbone_has_its_own_learning_rate(tmp_path):
    run = fit(tmp_path, Classifier(model_ranks.net(), num_classes=3, lr=0.1, backbone_lr=0.0))
    assert {g["initial_lr"] for g in run.optimizers[0].param_groups} == {0.1, 0.0}


def test_unfreezing_without_freezing_is_refused():
    with pytest.raises(ValueError, match="pass freeze_backbone=True"):
        Classifier(unfreeze_at_epoch=2)


# The optimiser ------------------------------------------------------------------------------


class Rates(L.Callback):
    """The learning rate of each optimiser step."""

    def __init__(self):
        self.found = []

    def on_before_optimizer_step(self, run, model, optimizer):
        self.found.append(optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"max_epochs": 2}, 16),
        ({"max_epochs": 2, "accumulate_grad_batches": 3}, 6),
        ({"max_epochs": -1, "max_steps": 12}, 12),
    ],
)
def test_the_learning_rate_decays_to_zero_over_all_steps(tmp_path, options, steps):
    rates, model = Rates(), classifier(lr=2.0, warmup_steps=2)
    fit(tmp_path, model, callbacks=[rates], **options)
    falling = [1 + math.cos(math.pi * step / (steps - 2)) for step in range(steps - 2)]
    assert rates.found == pytest.approx([1.0, 2.0, *falling])
    assert model.lr_schedulers().get_last_lr()[0] == pytest.approx(0, abs=1e-9)


def test_without_a_known_end_the_learning_rate_is_constant(tmp_path):
    class Stop(Rates):
        def on_train_batch_end(self, run, *args):
            run.should_stop = run.global_step >= 10

    rates = Stop()
    fit(tmp_path, classifier(lr=1.0, warmup_steps=4), max_epochs=-1, callbacks=[rates])
    assert rates.found == [0.25, 0.5, 0.75, *[1.0] * (len(rates.found) - 3)]
    assert len(rates.found) >= 10


def test_sgd_has_momentum_and_no_decay_on_biases(tmp_path):
    run = fit(tmp_path, classifier(optimizer="sgd", momentum=0.8, weight_decay=0.1))
    [optimizer] = run.optimizers
    assert isinstance(optimizer, torch.optim.SGD)
    assert {g["momentum"] for g in optimizer.param_groups} == {0.8}
    for group in optimizer.param_groups:
        assert all((p.ndim > 1) == (group["weight_decay"] == 0.1) for p in group["params"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adam"}, "one of adamw, sgd, got 'adam': did you mean 'adamw'"),
        ({"lr": -1.0}, "lr must be 0 or more, got -1.0"),
        ({"warmup_steps": -1}, "warmup_steps must be 0 or more"),
        ({"net": "small_resnt"}, "did you mean 'small_resnet'"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        Classifier(**options)


def test_the_typed_options_are_the_arguments_of_the_base_class():
    arguments = inspect.signature(TrainingModule, eval_str=True).parameters
    named = {n: p.annotation for n, p in arguments.items() if p.kind is p.KEYWORD_ONLY}
    assert named == get_type_hints(TrainingOptions)


@pytest.mark.parametrize("model", [Classifier, Regressor])
def test_hyperparameters_have_the_defaults_and_the_arguments_of_the_subclass(model):
    hparams = model(lr=0.5).hparams
    defaults = inspect.signature(TrainingModule).parameters
    own = [n for n, p in inspect.signature(model).parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert set(hparams) == {*TrainingOptions.__annotations__, *own, "net"}
    assert all(hparams[n] == p.default for n, p in defaults.items() if n not in ("net", "lr"))


# The network and the checkpoint -------------------------------------------------------------


def test_a_checkpoint_loads_without_arguments_and_predicts_equally(tmp_path):
    model = Classifier(lr=0.01)
    data = Data(rows("multiclass"))
    data.num_classes, data.input_sizes = 3, SIZES
    run = trainer(1, tmp_path, max_epochs=1, limit_val_batches=0)
    run.fit(model, data)
    run.save_checkpoint(tmp_path / "run.ckpt")
    loaded = Classifier.load_from_checkpoint(tmp_path / "run.ckpt", weights_only=True)
    assert loaded.hparams["net"] == "tabular_mlp"
    assert loaded.hparams["num_classes"] == 3
    assert loaded.hparams["input_sizes"] == SIZES
    inputs = rows("multiclass")[0].inputs
    assert torch.equal(loaded.eval()(inputs), model.eval()(inputs))


def test_a_users_network_must_be_passed_again(tmp_path):
    run = fit(tmp_path, Classifier(model_ranks.net(), num_classes=3))
    run.save_checkpoint(tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match=r"torch.nn.modules.container.Sequential.*net=Sequential"):
        Classifier.load_from_checkpoint(tmp_path / "run.ckpt")
    loaded = Classifier.load_from_checkpoint(tmp_path / "run.ckpt", net=model_ranks.net())
    for name, value in run.lightning_module.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])


def test_pretrained_weights_are_not_downloaded_for_a_checkpoint(tmp_path, monkeypatch):
    asked = []

    def build(name, *, weights, **_):
        asked.append(weights)
        return model_ranks.net()

    monkeypatch.setattr("models.training.build_net", build)
    run = fit(tmp_path, Classifier("resnet18", weights="DEFAULT", num_classes=3))
    run.save_checkpoint(tmp_path / "run.ckpt")
    Classifier.load_from_checkpoint(tmp_path / "run.ckpt")
    assert asked == ["DEFAULT", None]
    assert run.lightning_module.hparams["weights"] == "DEFAULT"


def test_a_users_network_has_no_options():
    with pytest.raises(ValueError, match="net_options is for networks built by name"):
        Classifier(model_ranks.net(), net_options={"dropout": 0.1})


def test_the_network_is_built_once(tmp_path):
    model = classifier()
    fit(tmp_path, model)
    net = model.net
    model.configure_model()
    assert model.net is net


@pytest.mark.parametrize("model", [Classifier, Regressor])
def test_data_of_another_size_is_refused(tmp_path, model):
    task = "multiclass" if model is Classifier else "regression"
    made = model(
        input_sizes=SIZES, **({"num_classes": 3} if task == "multiclass" else {"num_targets": 1})
    )
    data = Data(rows(task))
    data.input_sizes = {"num_numeric": 5, "cardinalities": []}
    with pytest.raises(ValueError, match=r"was built for inputs of .*6.*, the datamodule has .*5"):
        trainer(1, tmp_path).validate(made, data, verbose=False)


def test_images_may_change_their_size_but_not_their_channels(tmp_path):
    model = Classifier(num_classes=3, input_sizes={"input_shape": [1, 8, 8]})
    data = Data(rows("multiclass"))
    model._trainer = trainer(1, tmp_path)
    model._trainer.datamodule = data
    data.input_sizes = {"input_shape": [1, 9, 9]}
    model._check_data()
    data.input_sizes = {"input_shape": [3, 8, 8]}
    with pytest.raises(ValueError, match=r"'channels': 1.*'channels': 3"):
        model._check_data()


def test_model_and_datamodule_may_have_arguments_of_the_same_name(tmp_path):
    class Named(Data):
        def __init__(self, batches, num_classes=99, lr="other"):
            super().__init__(batches)
            self.save_hyperparameters(ignore=["batches"])
            self.num_classes, self.input_sizes = 3, SIZES

    logger = CSVLogger(tmp_path)
    run = quiet_trainer(max_epochs=1, logger=logger, log_every_n_steps=1)
    run.fit(Classifier(), Named(rows("multiclass")))
    assert logger.experiment.hparams["net"] == "tabular_mlp"
    assert logger.experiment.hparams["warmup_steps"] == 0.05


def test_batch_norm_on_a_batch_of_one_sample_is_refused_with_a_remedy(tmp_path):
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    [first, *_] = rows("multiclass")
    single = Batches([type(first)(first.inputs[:1], first.target[:1])])
    run = trainer(1, tmp_path, max_epochs=1, limit_val_batches=0)
    with pytest.raises(ValueError, match=r"a batch of one sample; use batch_size=2 or more"):
        run.fit(Classifier(net, num_classes=3), single, single)


def test_inputs_of_a_predict_batch_are_found_with_and_without_target():
    [batch, *_] = rows("multiclass")
    assert bare_inputs(batch) is batch.inputs
    assert bare_inputs(batch.inputs) is batch.inputs
    assert bare_inputs(tuple(batch)) is batch.inputs
    assert bare_inputs(list(batch)) is batch.inputs
