from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchvision import transforms as T

from datamodules import (
    DatasetDataModule,
    ImageFolderDataModule,
    TabularDataModule,
    TextDataModule,
    samples,
)
from datamodules.insight import Finding, Report, SampleStep, inspect, print_report

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import inspect_data

MEAN = [0.5, 0.5, 0.5]


class Own(L.LightningDataModule):
    """A user's own datamodule of stock loaders."""

    def __init__(self, train, val, **options):
        super().__init__()
        self.parts = train, val
        self.train_options = {"shuffle": True, "batch_size": 8, **options.get("train_loader", {})}
        self.val_options = {"batch_size": 8, **options.get("val_loader", {})}
        if "num_classes" in options:
            self.num_classes = options["num_classes"]

    def train_dataloader(self):
        return DataLoader(self.parts[0], **self.train_options)

    def val_dataloader(self):
        return DataLoader(self.parts[1], **self.val_options)


class Images(Dataset):
    def __init__(self, n, transform, *, seed=0, classes=2):
        levels = np.random.default_rng(seed).integers(0, 256, (n, 12, 12, 3), np.uint8)
        self.images = [Image.fromarray(level) for level in levels]
        self.targets = [k % classes for k in range(n)]
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.targets[index]


def rows(n, seed=0, **changes):
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, 4, generator=generator), torch.arange(n) % 2
    return TensorDataset(changes.get("x", x), changes.get("y", y))


def own(train=None, val=None, **options):
    return Own(train or rows(40), val or rows(16, 1), **options)


def with_images(train, val=None, **options):
    val = val or train
    return Own(Images(24, train), Images(16, val, seed=1), **options)


FIXED = T.Compose([T.ToTensor(), T.Normalize(MEAN, MEAN)])


class OwnDraws:
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __call__(self, tensor):
        return tensor + 0 * float(self.generator.random())


class Mapped(TensorDataset):
    def __init__(self, of, class_to_idx):
        super().__init__(*of.tensors)
        self.class_to_idx = class_to_idx


class Stream(IterableDataset):
    def __init__(self, n, start=0):
        self.n, self.start = n, start

    def __iter__(self):
        for k in range(self.start, self.start + self.n):
            yield torch.full((3,), float(k)), k % 2


def folders(tmp_path, change, **options):
    """Class folders of train and val, 6 and 4 images each, with one fault."""
    draws = np.random.default_rng(0)
    for split, n in (("train", 6), ("val", 4)):
        for name in ("ash", "birch"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for k in range(n):
                pixels = draws.integers(0, 256, (12, 12, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{k}.png")
    change(tmp_path)
    return ImageFolderDataModule(tmp_path, image_size=12, num_workers=0, **options)


def table(tmp_path, cells, **options):
    path = tmp_path / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(cells), *zip(*cells.values(), strict=True)])
    return TabularDataModule(path, "y", **options)


def texts(path, pairs):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *pairs])
    return path


def numbers(n, seed=0):
    return np.random.default_rng(seed).normal(size=n).round(6).tolist()


def words(n, start=0):
    return [(f"text number {k} of many {k * k}", "ab"[k % 2]) for k in range(start, start + n)]


def text_leak(tmp_path):
    train = texts(tmp_path / "t.csv", words(60))
    val = texts(tmp_path / "v.csv", words(20, 50))
    return TextDataModule(train, val_path=val, vocab_size=300)


FAULTS = {
    "overlap-rows": ("overlap", lambda p: own(rows(40), rows(16))),
    "overlap-files": (
        "overlap",
        lambda p: folders(p, lambda r: shutil.copy(r / "train/ash/0.png", r / "val/ash/twin.png")),
    ),
    "overlap-texts": ("overlap", text_leak),
    "two-labels": (
        "label-conflict",
        lambda p: folders(
            p, lambda r: shutil.copy(r / "train/ash/0.png", r / "train/birch/twin.png")
        ),
    ),
    "class-absent": (
        "class-absent",
        lambda p: folders(p, lambda r: shutil.rmtree(r / "val/birch")),
    ),
    "class-unlearnt": ("class-unlearnt", lambda p: own(val=rows(16, 1, y=torch.arange(16) % 3))),
    "class-shift": ("class-shift", lambda p: own(val=rows(60, 1, y=(torch.arange(60) > 2).long()))),
    "class-map": (
        "class-map",
        lambda p: own(Mapped(rows(40), {"a": 0, "b": 1}), Mapped(rows(16, 1), {"b": 0, "a": 1})),
    ),
    "unshuffled": ("train-unshuffled", lambda p: own(train_loader={"shuffle": False})),
    "sorted": (
        "train-unshuffled",
        lambda p: own(rows(40, y=torch.arange(40) // 20), train_loader={"shuffle": False}),
    ),
    "single": ("single-sample-batch", lambda p: own(rows(41))),
    "val-shuffled": ("val-shuffled", lambda p: own(val_loader={"shuffle": True})),
    "val-drop-last": (
        "val-drop-last",
        lambda p: own(val=rows(15, 1), val_loader={"drop_last": True}),
    ),
    "val-random": (
        "val-random",
        lambda p: with_images(FIXED, T.Compose([T.RandomCrop(12, padding=2), *FIXED.transforms])),
    ),
    "normalize-twice": (
        "normalize-twice",
        lambda p: with_images(T.Compose([*FIXED.transforms, T.Normalize(MEAN, MEAN)])),
    ),
    "normalize-first": (
        "normalize-first",
        lambda p: with_images(T.Compose([T.Normalize(MEAN, MEAN), T.ToTensor()])),
    ),
    "normalize-missing": ("normalize-missing", lambda p: with_images(T.ToTensor())),
    "raw-uint8": ("values-raw", lambda p: with_images(T.PILToTensor())),
    "raw-float": (
        "values-raw",
        lambda p: with_images(
            T.Compose([T.PILToTensor(), T.ConvertImageDtype(torch.float), Times()])
        ),
    ),
    "channels-last": ("channels-last", lambda p: with_images(ChannelsLast())),
    "size-differs": (
        "size-differs",
        lambda p: with_images(FIXED, T.Compose([T.Resize(10), *FIXED.transforms])),
    ),
    "dtype-differs": ("dtype-differs", lambda p: with_images(FIXED, T.PILToTensor())),
    "own-generator": (
        "own-generator",
        lambda p: with_images(T.Compose([*FIXED.transforms, OwnDraws()])),
    ),
    "lambda": ("not-picklable", lambda p: with_images(lambda image: FIXED(image))),
    "too-strong": (
        "augment-strong",
        lambda p: with_images(T.Compose([T.GaussianBlur(11, 5.0), *FIXED.transforms]), FIXED),
    ),
    "float64": ("float64", lambda p: own(rows(40, x=torch.rand(40, 4).double()))),
    "nan": ("non-finite", lambda p: own(rows(40, x=torch.full((40, 4), torch.nan)))),
    "constant-inputs": ("constant-inputs", lambda p: own(rows(40, x=torch.ones(40, 4)))),
    "int32": ("target-dtype", lambda p: own(rows(40, y=(torch.arange(40) % 2).int()))),
    "float-labels": ("target-dtype", lambda p: own(rows(40, y=torch.rand(40).double()))),
    "column": ("target-shape", lambda p: own(rows(40, y=torch.rand(40, 1)))),
    "from-one": (
        "target-range",
        lambda p: own(rows(40, y=torch.arange(40) % 2 + 1), num_classes=2),
    ),
    "negative": ("target-range", lambda p: own(rows(40, y=torch.arange(40) % 2 - 1))),
    "constant": ("constant-target", lambda p: own(rows(40, y=torch.zeros(40).long()))),
    "nan-target": ("target-non-finite", lambda p: own(rows(40, y=torch.full((40,), torch.nan)))),
    "imbalance": ("imbalance", lambda p: own(rows(90, y=(torch.arange(90) < 3).long()))),
    "ragged": (
        "batch-fails",
        lambda p: own([(torch.zeros(k + 1), 0) for k in range(20)]),  # type: ignore[arg-type]
    ),
    "leak": (
        "target-leak",
        lambda p: table(p, {"a": numbers(60), "told": ["x", "z"] * 30, "y": ["p", "q"] * 30}),
    ),
    "leak-number": (
        "target-leak",
        lambda p: table(p, {"a": numbers(60), "b": numbers(60, 1), "y": numbers(60)}),
    ),
    "empty-texts": (
        "empty-texts",
        lambda p: TextDataModule(
            texts(p / "t.csv", [*words(60), *[("", "a"), ("", "b")] * 5]), vocab_size=300
        ),
    ),
    "cut-texts": (
        "truncated",
        lambda p: TextDataModule(texts(p / "t.csv", words(60)), vocab_size=300, max_length=2),
    ),
}


class Times:
    def __call__(self, tensor):
        return tensor * 255


class ChannelsLast:
    def __call__(self, image):
        return FIXED(image).permute(1, 2, 0)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, tmp_path):
    code, make = FAULTS[name]
    report = inspect(make(tmp_path))
    loud = {finding.code for finding in report.findings if finding.level != "note"}
    assert code in loud, str(report)


def test_a_damaged_file_is_named_when_files_are_verified(tmp_path):
    def cut(root):
        path = root / "train/ash/0.png"
        path.write_bytes(path.read_bytes()[:150])

    def renamed(root):
        cut(root)
        (root / "val/ash/0.png").rename(root / "val/ash/0.jpg")

    report = inspect(folders(tmp_path, renamed), verify=True)
    named = [f.sentence for f in report.findings if f.code == "damaged-file"]
    assert len(named) == 1
    assert "0.png" in named[0]
    assert "misnamed" in report.codes


CLEAN = {
    "own": lambda p: own(),
    "own images": lambda p: with_images(FIXED),
    "folders": lambda p: folders(p, lambda root: None),
    "brought": lambda p: DatasetDataModule(rows(60)),
    "stream": lambda p: DatasetDataModule(train=Stream(60), val=Stream(20, 100), num_workers=0),
    "cached": lambda p: folders(p, lambda root: None, image_options={"cache": "ram"}),
    "texts": lambda p: TextDataModule(texts(p / "t.csv", words(60)), vocab_size=300),
    "digits": lambda p: samples.digits(),
    "wine": lambda p: samples.wine(),
    "breast_cancer": lambda p: samples.breast_cancer(),
    "diabetes": lambda p: samples.diabetes(),
}
FIRST, SECOND = {"text": 1, "target": 0}, "[^:]+"
REAL = {
    "images/clothing": lambda p: ImageFolderDataModule(p, image_size=32, num_workers=0),
    "images/cifar10_jpg_small": lambda p: ImageFolderDataModule(p, image_size=32, num_workers=0),
    "tabular/seaborn/titanic.csv": lambda p: TabularDataModule(p, "survived", drop=["alive"]),
    "tabular/seaborn/tips.csv": lambda p: TabularDataModule(p, "tip"),
    "tabular/palmerpenguins/penguins.csv": lambda p: TabularDataModule(p, "species"),
    "tabular/california/housing.csv": lambda p: TabularDataModule(p, "median_house_value"),
    "text/sms_spam/sms.tsv": lambda p: TextDataModule(p, vocab_size=300, **FIRST),
    "text/trec/TREC.train": lambda p: TextDataModule(
        p,
        test_path=p.with_name("TREC.test"),
        separator=" ",
        label_pattern=SECOND,
        encoding="latin-1",
        vocab_size=300,
        **FIRST,
    ),
    "text/uci_amazon_cells/amazon_cells_labelled.txt": lambda p: TextDataModule(
        p, separator="\t", text=0, target=1, vocab_size=300
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_data_raise_no_alarm(name, tmp_path):
    report = inspect(CLEAN[name](tmp_path))
    assert not report.failed(strict=True), str(report)


@pytest.mark.parametrize("name", REAL)
def test_real_data_raise_no_alarm(name, data_dir):
    report = inspect(REAL[name](data_dir / name), verify=True)
    assert not report.failed(strict=True), str(report)


def test_the_users_random_state_is_left_alone():
    torch.manual_seed(3)
    dm = with_images(T.Compose([T.RandomHorizontalFlip(), *FIXED.transforms]), FIXED)
    dm.train_options["shuffle"] = False
    before = torch.get_rng_state()
    inspect(dm)
    assert torch.equal(before, torch.get_rng_state())


def test_a_report_shows_findings_and_escapes_them():
    finding = Finding("warning", "overlap", "<b> is in both", "remove it")
    report = Report("Data", {"Splits": ["train: 3 samples"]}, [finding])
    assert "warning [overlap] <b> is in both; remove it" in str(report)
    assert "&lt;b&gt; is in both" in report._repr_html_()
    assert not report.failed()
    assert report.failed(strict=True)
    report.strict = True
    assert report.failed()


def test_levels_are_printed_in_words_and_by_sign_without_breaking_a_path(capsys):
    path = "/".join(["a long folder [red]"] * 12)
    findings = [Finding("error", "overlap", f"{path} is in both", "remove it")]
    findings.append(Finding("note", "padding", "padding is 63%", "sort"))
    step = SampleStep("train", "decode", "3 x 4 pixels, RGB", "uint8", "0 to 255")
    print_report(Report("Data", {"Splits": ["train: 3 samples"]}, findings, [step]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [f"x error [overlap] {path} is in both", "    remove it",
                          "- note [padding] padding is 63%"]  # fmt: skip
    assert "  train: 3 samples" in lines
    assert "  decode  3 x 4 pixels, RGB  uint8  0 to 255" in lines


def test_strict_counts_warnings():
    dm = own(train_loader={"shuffle": False})
    assert not inspect(dm).failed()
    assert inspect(dm, strict=True).failed()


def test_the_script_ends_with_1_on_faults(tmp_path, capsys):
    folders(tmp_path, lambda r: shutil.copy(r / "train/ash/0.png", r / "val/ash/twin.png"))
    arguments = ["--data", "ImageFolderDataModule", f"--data.root={tmp_path}"]
    assert inspect_data.main([*arguments, "--data.image_size=12"]) == 1
    assert "twin.png" in capsys.readouterr().out


def test_the_script_ends_with_0_on_clean_data(capsys):
    assert inspect_data.main(["--data", "wine", "--strict", "true"]) == 0
    assert "train: 142 samples" in capsys.readouterr().out


def test_the_script_writes_the_report_on_faults_too(tmp_path, capsys):
    folders(tmp_path / "in", lambda r: shutil.copy(r / "train/ash/0.png", r / "val/ash/twin.png"))
    arguments = ["--data", "ImageFolderDataModule", f"--data.root={tmp_path / 'in'}"]
    place = tmp_path / "out" / "look.html"
    assert inspect_data.main([*arguments, "--data.image_size=12", f"--report={place}"]) == 1
    assert "twin.png" in place.read_text(encoding="utf-8")
    assert (place.parent / "look-class-bars.png").exists()
    assert str(place) in capsys.readouterr().out
