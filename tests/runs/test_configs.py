from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml
from script_runs import (  # noqa: F401 - a fixture that is there by being known
    CPU,
    SCRIPTS,
    as_if_alone,
    fit,
    write_images,
)

import datamodules

CONFIGS = sorted((SCRIPTS / "configs").glob("*.yaml"))
SOURCES = {  # which settings show a source; DatasetDataModule takes a dataset, not settings
    name
    for name in datamodules.__all__
    if name.endswith("DataModule") and name not in ("DataModule", "DatasetDataModule")
}


def test_every_source_has_a_config():
    text = "\n".join(path.read_text(encoding="utf-8") for path in CONFIGS)
    assert {name for name in SOURCES if name not in text} == set()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs_are_parsed_and_begin_with_their_command(path):
    named = yaml.safe_load(path.read_text(encoding="utf-8"))["data"]["class_path"]
    if named.endswith("DataModule") and named not in SOURCES:
        pytest.skip(f"{named} is not there")
    try:
        config = fit.build_parser().parse_args(["--config", str(path)])
    except argparse.ArgumentError as error:
        pytest.fail(str(error))
    assert config.data.class_path.endswith(named.rpartition(".")[2])
    first = path.read_text(encoding="utf-8").partition("\ndata:")[0]
    assert all(line.startswith("#") for line in first.splitlines())
    assert f"python scripts/fit.py --config scripts/configs/{path.name}" in first


def test_the_config_for_a_folder_trains(capfd, tmp_path):
    root = write_images(tmp_path / "photos")
    given = ["--data.root", str(root), "--data.image_size", "8", "--model.net", "small_resnet"]
    given += ["--max_epochs", "1", "--data.num_workers", "0"]
    path = SCRIPTS / "configs" / "image_folder.yaml"
    assert fit.main(["--config", str(path), *given, *CPU]) == 0
    assert "best checkpoint" in capfd.readouterr().out


def test_the_config_for_a_table_of_labels_trains(capfd, tmp_path):
    root = write_images(tmp_path / "photos")
    files = sorted(root.rglob("*.png"))
    rows = [f"{file.relative_to(root)},{file.parent.name}\n" for file in files]
    (root / "train.csv").write_text("image,breed\n" + "".join(rows))
    given = ["--data.root", str(root), "--data.image_size", "8", "--model.net", "small_resnet"]
    given += ["--max_epochs", "1", "--data.num_workers", "0"]
    path = SCRIPTS / "configs" / "image_table.yaml"
    assert fit.main(["--config", str(path), *given, *CPU]) == 0
    assert "best checkpoint" in capfd.readouterr().out


def test_the_config_for_cifar10_trains_on_a_small_set(capfd, data_dir):
    root = data_dir / "images" / "cifar10_batches_small"
    given = ["--data.root", str(root), "--data.val_split", "0.1", "--fast_dev_run", "1"]
    given += ["--data.dataset_class", "small_cifar.open_small"]
    path = SCRIPTS / "configs" / "cifar10.yaml"
    Path("small_cifar.py").write_text(
        "from torchvision.datasets import CIFAR10\n\n\nclass Small(CIFAR10):\n"
        "    def _check_integrity(self):\n        return True\n\n\n"
        "def open_small(root, train, download):\n    return Small(root, train=train)\n"
    )
    assert fit.main(["--config", str(path), *given, *CPU]) == 0


@pytest.mark.parametrize(
    ("named", "own"),
    [
        (["--data", "ImageFolderDataModule", "--data.root", "photos"], ("RGB", 224, True, 32)),
        (["--data=ImageFolderDataModule", "--data.image_size", "64"], ("RGB", 64, True, 32)),
        (["--data.batch_size", "3"], ("L", 8, False, 3)),
        (["--data", "digits"], ("L", 8, False, 64)),
    ],
)
def test_a_named_source_has_its_own_defaults_not_those_of_the_digits(named, own):
    parser = fit.build_parser()
    data = parser.instantiate(fit.parse(parser, named)).data.hparams
    assert tuple(data[name] for name in ("mode", "image_size", "flip", "batch_size")) == own
