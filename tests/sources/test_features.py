from __future__ import annotations

import json
import sys

import pytest
import torch
from script_runs import SCRIPTS, fit
from torch import nn

from datamodules import FeaturesDataModule, ImageFolderDataModule
from datamodules.core.accessors import add_split_options
from datamodules.feature_packs.format import read_features
from datamodules.feature_packs.writer import feature_keys, write_features
from datamodules.samples import digits
from models.backbones import build_backbone, without_head

sys.path.append(str(SCRIPTS))
import precompute_features


class Means(nn.Module):
    """Mean of each channel, times a weight: features that can be written out by hand."""

    def __init__(self, weight: float = 2.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, image):
        return image.mean(dim=(2, 3)) * self.weight


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    from made_images import blocks

    root = tmp_path_factory.mktemp("features") / "photos"
    for i in range(20):
        path = root / ("cat" if i % 2 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        blocks(20 + i, 40 - i).save(path)
    return root


def images(photos, **options):
    return ImageFolderDataModule(photos, image_size=16, num_workers=0, val_split=0.2, **options)


def test_features_are_the_nets_outputs_in_the_splits_order_without_augmentation(photos, tmp_path):
    data = images(photos, batch_size=4)
    write_features(data, Means(), tmp_path / "x.features", batch_size=3)
    features = FeaturesDataModule(tmp_path / "x.features", batch_size=4)
    plain = images(photos, train_transform=data.eval_transform)
    for split in ("train", "val"):
        dataset = getattr(plain, f"{split}_dataset")
        normalizer = plain.normalizer
        expected = [
            normalizer(torch.as_tensor(x)[None]).mean(dim=(2, 3))[0] * 2 for x, _ in dataset
        ]
        found = getattr(features, f"{split}_dataset")
        assert torch.allclose(found.features, torch.stack(expected), atol=1e-6)
        assert found.targets.tolist() == [y for _, y in dataset]
    assert features.classes == data.classes
    assert features.class_counts == data.class_counts
    assert features.split_fingerprint() == data.split_fingerprint()


def test_the_datamodule_is_left_as_it_was(photos, tmp_path):
    data, untouched = images(photos, seed=3), images(photos, seed=3)
    write_features(data, Means(), tmp_path / "x.features")
    pairs = zip(data.batches("train"), untouched.batches("train"), strict=True)
    assert all(torch.equal(a.inputs, b.inputs) for a, b in pairs)
    assert dict(data.hparams) == dict(untouched.hparams)


def test_a_batch_is_rows_and_their_targets(photos, tmp_path):
    write_features(images(photos), Means(), tmp_path / "x.features")
    features = FeaturesDataModule(tmp_path / "x.features", batch_size=5, seed=0)
    batches = list(features.batches("train"))
    assert batches[0].inputs.shape == (5, 3)
    assert batches[0].inputs.dtype == torch.float32
    assert batches[0].target.dtype == torch.int64
    rows = torch.cat([batch.inputs for batch in batches])
    stored = features.train_dataset.features
    assert sorted(rows.tolist()) == sorted(stored.tolist())


def test_features_of_other_data_transform_or_weights_are_refused(photos, tmp_path):
    data = images(photos)
    keys = write_features(data, Means(), tmp_path / "x.features")
    FeaturesDataModule(tmp_path / "x.features", expected=keys._asdict()).setup()
    others = {
        "data": feature_keys(images(photos, split_seed=1), Means()).data,
        "transform": feature_keys(
            images(photos, image_options={"mean": [0.1, 0.2, 0.3]}), Means()
        ).transform,
        "weights": feature_keys(data, Means(3.0)).weights,
    }
    for name, other in others.items():
        assert other != getattr(keys, name)
        with pytest.raises(ValueError, match=f"other {name}"):
            FeaturesDataModule(tmp_path / "x.features", expected={name: other}).setup()
    with pytest.raises(ValueError, match="one of"):
        FeaturesDataModule(tmp_path / "x.features", expected={"net": "x"}).setup()


def test_features_that_hold_are_kept_and_others_replaced(photos, tmp_path):
    out, data = tmp_path / "x.features", images(photos)
    write_features(data, Means(), out)
    before = (out / "features.json").stat().st_mtime_ns
    write_features(data, Means(), out)
    assert (out / "features.json").stat().st_mtime_ns == before
    write_features(data, Means(3.0), out)
    _, parts = read_features(out, feature_keys(data, Means(3.0))._asdict())
    assert set(parts) == {"train", "val", "test"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.features"]


@pytest.mark.parametrize("name", ["train-features.npy", "val-targets.npy", "features.json"])
def test_damaged_features_are_refused(photos, tmp_path, name):
    out = tmp_path / "x.features"
    write_features(images(photos), Means(), out)
    content = (out / name).read_bytes()
    (out / name).write_bytes(content[:-4])
    with pytest.raises(ValueError, match="damaged"):
        read_features(out)
    changed = bytearray(content)
    changed[-1] ^= 1
    (out / name).write_bytes(bytes(changed))
    with pytest.raises(ValueError, match="damaged"):
        read_features(out)


def test_other_versions_other_folders_and_absent_features_are_told_apart(photos, tmp_path):
    out = tmp_path / "x.features"
    write_features(images(photos), Means(), out)
    manifest = json.loads((out / "features.json").read_text())
    (out / "features.json").write_text(json.dumps({**manifest, "version": 9}))
    with pytest.raises(ValueError, match="version 9"):
        FeaturesDataModule(out).setup()
    with pytest.raises(FileNotFoundError, match="precompute_features"):
        FeaturesDataModule(tmp_path / "none").setup()
    with pytest.raises(FileExistsError, match="no features"):
        write_features(images(photos), Means(), photos)
    with pytest.raises(ValueError, match="keep the splits"):
        FeaturesDataModule(out, val_split=0.2)
    with pytest.raises(ValueError, match="limit was given, but features keep the splits"):
        FeaturesDataModule(out, limit=2)
    folded = FeaturesDataModule(out)
    add_split_options(folded, {"folds": 2, "fold": 0})
    with pytest.raises(ValueError, match="have no folds"):
        folded.setup()


@pytest.mark.parametrize(
    ("net", "said"),
    [(nn.Identity(), r"must return features \(N, F\)"), (Means(float("nan")), "not finite")],
    ids=["images", "nan"],
)
def test_outputs_that_are_no_features_are_refused(photos, tmp_path, net, said):
    with pytest.raises(ValueError, match=said):
        write_features(images(photos), net, tmp_path / "x.features")
    assert not (tmp_path / "x.features").exists()


def test_a_backbone_is_a_net_without_its_last_layer():
    sizes = {"input_shape": [3, 32, 32]}
    assert (
        build_backbone("small_resnet", input_sizes=sizes)(torch.zeros(2, 3, 32, 32)).shape[1] == 128
    )
    assert build_backbone("resnet18")(torch.zeros(1, 3, 64, 64)).shape == (1, 512)
    with pytest.raises(ValueError, match="no linear layer with 3 outputs"):
        without_head(nn.Identity(), 3)


def test_images_in_memory_lose_their_shift_and_flip(tmp_path):
    data = digits(batch_size=64)
    one = write_features(data, nn.Flatten(), tmp_path / "a.features")
    two = write_features(digits(batch_size=64), nn.Flatten(), tmp_path / "b.features")
    assert one == two
    a, b = read_features(tmp_path / "a.features")[1], read_features(tmp_path / "b.features")[1]
    assert all(torch.equal(a[s][0], b[s][0]) for s in a)


def test_the_scripts_make_features_and_train_a_linear_head(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = [
        "--data",
        "ImageFolderDataModule",
        "--data.root",
        str(photos),
        "--data.image_size",
        "32",
    ]
    made += ["--net", "small_resnet", "--out", "x.features"]
    assert precompute_features.main(made) == 0
    assert "train" in capsys.readouterr().out
    head = ["--data", "FeaturesDataModule", "--data.path", "x.features", "--max_epochs", "1"]
    head += ["--model", "Classifier", "--model.net", "tabular_mlp", "--accelerator", "cpu"]
    assert fit.main([*head, "--model.net_options", '{"hidden": []}']) == 0
    assert list(tmp_path.glob("runs/*/metrics.csv"))
    assert precompute_features.main(made[:4]) == 2
    assert "--out" in capsys.readouterr().err
