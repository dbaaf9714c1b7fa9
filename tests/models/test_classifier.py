from __future__ import annotations

import math

import pytest
import sklearn.metrics as reference
import torch
from plain_data import Batches, Data
from torch import nn
from torch.nn import functional as F
from trainers import quiet_trainer

from datamodules.batches.batch import Batch, RowBatch, TabularInputs, TextInputs
from models import Classifier

K = 3
SIZES = {"num_numeric": 4, "cardinalities": []}


def batches(n=21, size=5, multilabel=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 4, generator=generator)
    shape = (n, K) if multilabel else (n,)
    target = torch.randint(0, 2 if multilabel else K, shape, generator=generator)
    target = target.float() if multilabel else target
    return [Batch(*pair) for pair in zip(inputs.split(size), target.split(size), strict=True)]


def trainer(tmp_path, **options):
    return quiet_trainer(default_root_dir=tmp_path, **{"max_epochs": 1, **options})


def columns(data):
    return torch.cat([b.inputs for b in data]), torch.cat([b.target for b in data])


class Echo(nn.Module):
    """Logits are the inputs' first columns."""

    def forward(self, inputs):
        return inputs[:, :K] * 2


def found_by(tmp_path, model, data, **options):
    [scores] = trainer(tmp_path, **options).test(model, Batches(*data), verbose=False)
    return {name.removeprefix("test_"): value for name, value in scores.items()}


# Sizes --------------------------------------------------------------------------------------


def test_sizes_are_inferred_from_the_datamodule_and_saved(tmp_path):
    data = Data(batches(), num_classes=K, task="multiclass", input_sizes=SIZES)
    model = Classifier()
    trainer(tmp_path).fit(model, data)
    assert model.hparams["num_classes"] == K
    assert model.hparams["task"] == "multiclass"
    assert model.hparams["input_sizes"] == SIZES
    assert model.hparams["net"] == "tabular_mlp"


def test_a_users_network_needs_a_datamodule_with_num_classes_only(tmp_path):
    model = Classifier(nn.Linear(4, K))
    trainer(tmp_path).fit(model, Data(batches(), num_classes=K))
    assert model.hparams["num_classes"] == K


def test_loaders_without_a_datamodule_need_the_sizes_as_arguments(tmp_path):
    model = Classifier(num_classes=K, input_sizes=SIZES)
    run = trainer(tmp_path)
    run.fit(model, Batches(*batches()), Batches(*batches()))
    assert run.callback_metrics["val_loss"].isfinite()


@pytest.mark.parametrize("data", [None, Data(batches())])
def test_an_unknown_number_of_classes_is_refused(tmp_path, data):
    model = Classifier(nn.Linear(4, K))
    with pytest.raises(ValueError, match=r"number of classes is unknown: .*pass num_classes="):
        trainer(tmp_path).test(model, data or Batches(*batches()), verbose=False)


def test_a_regression_datamodule_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"task is regression.*use Regressor"):
        trainer(tmp_path).fit(Classifier(), Data(batches(), task="regression"))


def test_data_with_another_number_of_classes_is_refused(tmp_path):
    model = Classifier(num_classes=K, input_sizes=SIZES)
    data = Data(batches(), num_classes=5)
    with pytest.raises(ValueError, match="built for 3 classes, the datamodule has 5"):
        trainer(tmp_path).validate(model, data, verbose=False)


def test_balanced_weights_are_inferred_and_saved(tmp_path):
    data = Data(batches(), num_classes=K, class_counts=[1, 1, 4], input_sizes=SIZES)
    model = Classifier(class_weights="balanced")
    run = trainer(tmp_path)
    run.fit(model, data)
    assert model.hparams["class_weights"] == [2.0, 2.0, 0.5]
    run.save_checkpoint(tmp_path / "run.ckpt")
    loaded = Classifier.load_from_checkpoint(tmp_path / "run.ckpt")
    assert loaded.hparams["class_weights"] == [2.0, 2.0, 0.5]


def test_balanced_weights_of_multilabel_data_weigh_the_positives(tmp_path):
    data = Data(
        batches(multilabel=True),
        task="multilabel",
        num_classes=K,
        class_counts=[1, 5, 2],
        train_dataset=range(10),
        input_sizes=SIZES,
    )
    model = Classifier(class_weights="balanced")
    trainer(tmp_path).fit(model, data)
    assert model.hparams["class_weights"] == [9.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_weights": "balance"}, "did you mean 'balanced'"),
        ({"task": "regression"}, "one of multiclass, multilabel"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\)"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        Classifier(**options)


def test_a_wrong_number_of_weights_is_refused(tmp_path):
    model = Classifier(num_classes=K, input_sizes=SIZES, class_weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="one weight for each of 3 classes, got 2"):
        model.configure_model()


def test_balanced_weights_need_counts():
    model = Classifier(num_classes=K, input_sizes=SIZES, class_weights="balanced")
    with pytest.raises(ValueError, match="needs a datamodule that has class_counts"):
        model.configure_model()


def test_calling_a_network_that_is_not_built_is_refused():
    with pytest.raises(RuntimeError, match=r"outside of one call configure_model\(\) first"):
        Classifier(num_classes=K, input_sizes=SIZES)(torch.zeros(2, 4))


# Batches ------------------------------------------------------------------------------------


def logits_of(net, target, **options):
    model = Classifier(net, num_classes=K, **options)
    model.configure_model()
    return model._checked(model(torch.randn(5, 4)), target, first=True)


def test_a_network_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"must return \(N, 3\) logits.*got \(5, 2\)"):
        logits_of(nn.Linear(4, 2), torch.zeros(5, dtype=torch.int64))


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (torch.zeros(5), {}, r"\(5,\) int64 .*got \(5,\) torch.float32; use Regressor"),
        (torch.zeros(5, 1, dtype=torch.int64), {}, r"got \(5, 1\) torch.int64"),
        (torch.zeros(5, 2), {}, r"\(5, 3\) float shares, got \(5, 2\)"),
        (torch.tensor([0, 1, 2, 1, 7]), {}, "from 0 to 2, got 0 to 7; number the classes"),
        (torch.tensor([0, 1, 2, 1, -1]), {}, "from 0 to 2, got -1 to 2"),
        (torch.zeros(5), {"task": "multilabel"}, r"\(5, 3\) of 0 and 1, got \(5,\)"),
    ],
)
def test_targets_of_another_shape_dtype_or_range_are_refused(target, options, message):
    with pytest.raises(ValueError, match=message):
        logits_of(nn.Linear(4, K), target, **options)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32])
def test_class_indices_may_have_any_integer_dtype(dtype):
    assert logits_of(nn.Linear(4, K), torch.zeros(5, dtype=dtype)).dtype == torch.int64


def test_named_inputs_are_passed_to_the_network_one_by_one():
    class Two(nn.Module):
        def forward(self, first, second):
            return first + second

    numeric, codes = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64)
    model = Classifier(Two(), num_classes=K)
    for inputs in (TabularInputs(numeric, codes), TextInputs(codes, codes)):
        assert model(inputs).tolist() == [[2, 2, 2]] * 2


def test_a_network_may_wrap_its_logits():
    class Wrapping(nn.Module):
        def forward(self, inputs):
            return type("Output", (), {"logits": inputs})

    assert torch.equal(Classifier(Wrapping(), num_classes=4)(torch.ones(2, 4)), torch.ones(2, 4))


@pytest.mark.parametrize("multilabel", [False, True])
def test_predictions_are_float32_probabilities(tmp_path, multilabel):
    data = batches(multilabel=multilabel)
    model = Classifier(Echo(), num_classes=K, task="multilabel" if multilabel else "multiclass")
    found = torch.cat(trainer(tmp_path).predict(model, Data(data)))
    logits = columns(data)[0][:, :K] * 2
    expected = logits.sigmoid() if multilabel else logits.softmax(1)
    torch.testing.assert_close(found, expected)
    assert found.dtype == torch.float32
    [first] = data[:1]
    rows = RowBatch(first.inputs, torch.arange(5))
    assert torch.equal(model.predict_step(rows, 0), model.predict_step(first.inputs, 0))


# Scores -------------------------------------------------------------------------------------


def test_scores_agree_with_scikit_learn(tmp_path):
    data = batches(n=101)
    model = Classifier(Echo(), num_classes=K)
    found = found_by(tmp_path, model, data)
    inputs, target = columns(data)
    probabilities = (inputs[:, :K] * 2).double().softmax(1)
    predicted = probabilities.argmax(1)
    expected = {
        "loss": reference.log_loss(target, probabilities),
        "accuracy": reference.accuracy_score(target, predicted),
        "macro_accuracy": reference.balanced_accuracy_score(target, predicted),
        "macro_f1": reference.f1_score(target, predicted, average="macro"),
        "auroc": reference.roc_auc_score(target, probabilities, multi_class="ovr"),
    }
    assert found == pytest.approx(expected, rel=1e-6)
    assert model.confusion_matrix.tolist() == reference.confusion_matrix(target, predicted).tolist()


def test_multilabel_scores_agree_with_scikit_learn(tmp_path):
    data = batches(n=101, multilabel=True)
    model = Classifier(Echo(), num_classes=K, task="multilabel")
    found = found_by(tmp_path, model, data)
    inputs, target = columns(data)
    probabilities = (inputs[:, :K] * 2).double().sigmoid()
    predicted = probabilities > 0.5
    assert found["loss"] == pytest.approx(
        F.binary_cross_entropy(probabilities, target.double()).item(), rel=1e-6
    )
    assert found["macro_f1"] == pytest.approx(
        reference.f1_score(target, predicted, average="macro"), rel=1e-6
    )
    assert found["auroc"] == pytest.approx(reference.roc_auc_score(target, probabilities), rel=1e-6)
    assert found["accuracy"] == pytest.approx((predicted == target).double().mean().item())
    counts = reference.multilabel_confusion_matrix(target, predicted)
    assert model.confusion_matrix.tolist() == counts.tolist()


def test_a_weighted_loss_is_that_of_the_whole_split(tmp_path):
    data, weights = batches(n=11), [1.0, 5.0, 25.0]
    model = Classifier(Echo(), num_classes=K, class_weights=weights, label_smoothing=0.3)
    inputs, target = columns(data)
    expected = F.cross_entropy(inputs[:, :K] * 2, target, weight=torch.tensor(weights))
    assert found_by(tmp_path, model, data)["loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_training_metrics_are_those_of_the_whole_epoch(tmp_path):
    data = batches(n=11)
    model = Classifier(Echo(), num_classes=K, class_weights=[1.0, 5.0, 25.0])
    model.extra = nn.Parameter(torch.zeros(1))

    def forward(inputs):
        return inputs[:, :K] * 2 + model.extra * 0

    model.net.forward = forward
    run = trainer(tmp_path)
    run.fit(model, Batches(*data), Batches(*data))
    inputs, target = columns(data)
    loss = F.cross_entropy(inputs[:, :K] * 2, target, weight=torch.tensor([1.0, 5.0, 25.0]))
    right = (inputs[:, :K].argmax(1) == target).float().mean()
    assert run.callback_metrics["train_loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert run.callback_metrics["train_accuracy"] == pytest.approx(right.item())


def test_mixed_images_train_and_count_by_their_largest_share(tmp_path):
    data = [Batch(b.inputs, F.one_hot(b.target, K) * 0.6 + 0.4 / K) for b in batches()]
    model = Classifier(num_classes=K, input_sizes=SIZES, class_weights=[1.0, 2.0, 3.0])
    run = trainer(tmp_path)
    run.fit(model, Batches(*data), Batches(*batches()))
    assert run.callback_metrics["train_loss"].isfinite()
    assert 0 <= run.callback_metrics["train_accuracy"] <= 1


def test_a_class_absent_from_the_split_gives_finite_scores(tmp_path):
    data = [b for b in batches(n=60, size=1) if b.target != 2]
    found = found_by(tmp_path, Classifier(Echo(), num_classes=K), data)
    assert set(found) == {"loss", "accuracy", "macro_accuracy", "macro_f1", "auroc"}
    assert all(math.isfinite(value) for value in found.values())


def test_the_confusion_matrix_exists_after_an_evaluation_only(tmp_path):
    model = Classifier(Echo(), num_classes=K)
    with pytest.raises(RuntimeError, match=r"call trainer.validate or trainer.test first"):
        _ = model.confusion_matrix
    run = trainer(tmp_path)
    run.validate(model, Batches(*batches(n=7)), verbose=False)
    assert (model.confusion_matrix.sum(), model.confusion_matrix.dtype) == (7, torch.int64)
    run.test(model, Batches(*batches(n=9)), verbose=False)
    assert model.confusion_matrix.sum() == 9


def test_a_fit_may_follow_a_test_with_weights(tmp_path):
    model = Classifier(num_classes=K, input_sizes=SIZES, class_weights=[1.0, 2.0, 3.0])
    trainer(tmp_path).test(model, Batches(*batches()), verbose=False)
    trainer(tmp_path).fit(model, Batches(*batches()), Batches(*batches()))


# Precision, compilation, command line -------------------------------------------------------


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "bf16-mixed"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_scores_are_exact_in_every_precision(tmp_path, precision, multilabel):
    data = batches(n=601, size=50, multilabel=multilabel)
    weights = [1.0, 1.37, 2.51]
    model = Classifier(
        num_classes=K,
        input_sizes=SIZES,
        task="multilabel" if multilabel else "multiclass",
        class_weights=weights,
    )
    run = trainer(tmp_path, precision=precision)
    run.fit(model, Data(data))
    counted = model.confusion_matrix.sum() / (K if multilabel else 1)
    assert counted == 601
    assert abs(run.callback_metrics["train_loss"] - run.callback_metrics["val_loss"]) < 1
    # whole numbers of rows, which bfloat16 could not count
    rows = run.callback_metrics["train_accuracy"] * 601 * (K if multilabel else 1)
    assert rows == pytest.approx(round(rows.item()), abs=1e-3)
    assert torch.cat(run.predict(model, Data(data))).dtype == torch.float32


# torch 2.14's compiler looks at the gradients of what it traces, and warns of itself
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_model_trains_and_scores_the_same(tmp_path):
    data = batches()
    model = Classifier(num_classes=K, input_sizes=SIZES, class_weights=[1.0, 2.0, 3.0])
    model.configure_model()
    expected = found_by(tmp_path, model, data)
    compiled = torch.compile(model, backend="eager")
    assert found_by(tmp_path, compiled, data) == pytest.approx(expected, rel=1e-6)
    run = trainer(tmp_path)
    run.fit(compiled, Batches(*data), Batches(*data))
    assert run.callback_metrics["val_loss"].isfinite()
