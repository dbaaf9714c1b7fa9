from __future__ import annotations

import shutil

import lightning as L
import pytest
import torch
from image_files import class_folders, noise, solid
from made_images import blocks
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from datamodules import ImageFolderDataModule
from datamodules.insight import inspect
from datamodules.insight.checks.file_findings import check_file, check_files, passed_over

FIXED = T.Compose([T.Resize((8, 8)), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])


@pytest.fixture
def root(tmp_path):
    for k, split in enumerate(("train", "val")):
        for j, name in enumerate(("ash", "birch")):
            for i in range(4):
                noise(tmp_path / split / name / f"{i}.png", 100 * k + 10 * j + i)
    return tmp_path


def ours(root, **options):
    return ImageFolderDataModule(root, **{"image_size": 8, "num_workers": 0, **options})


class Stock(L.LightningDataModule):
    """torchvision's own folder reader."""

    def __init__(self, root):
        super().__init__()
        self.root = root

    def train_dataloader(self):
        return DataLoader(ImageFolder(self.root / "train", FIXED), batch_size=4, shuffle=True)

    def val_dataloader(self):
        return DataLoader(ImageFolder(self.root / "val", FIXED), batch_size=4)


def found(report, code):
    return [f for f in report.findings if f.code == code]


def test_every_file_is_named_with_what_is_wrong(root):
    (root / "train/ash/0.png").write_bytes(b"")
    (root / "train/ash/1.png").write_bytes((root / "train/ash/1.png").read_bytes()[:90])
    (root / "train/birch/2.png").rename(root / "train/birch/2.jpg")
    (root / "val/ash/0.png").write_text("no image")
    for make in (ours, Stock):
        report = inspect(make(root), verify=True)
        assert [f.sentence.count("0.png is empty") for f in found(report, "empty-file")] == [1]
        assert "ash/1.png" in found(report, "damaged-file")[0].sentence
        assert "val/ash/0.png" in found(report, "damaged-file")[1].sentence
        assert "2.jpg (PNG)" in found(report, "misnamed")[0].sentence
        named = "\n".join(report.sections["Files"])
        assert all(name in named for name in ("0.png", "1.png", "2.jpg"))


def test_of_many_damaged_files_the_section_names_all(root):
    for k in range(30):
        (root / "train/ash" / f"bad{k}.png").write_bytes(b"\x89PNG")
    report = inspect(ours(root, on_error="skip"), verify=True)
    assert len(found(report, "damaged-file")) == 21
    assert "10 more, of 30" in found(report, "damaged-file")[-1].sentence
    assert sum("damaged: " in line for line in report.sections["Files"]) == 30


def test_files_that_were_left_out_of_a_batch_are_said(root):
    (root / "val/ash/0.png").write_bytes(b"\x89PNG")
    report = inspect(ours(root, on_error="skip"))
    (finding,) = found(report, "skipped-files")
    assert finding.level == "warning"
    assert "val/ash/0.png" in finding.sentence


def test_a_gif_that_a_stock_folder_reader_passes_over_is_named(root):
    Image.open(root / "train/ash/0.png").save(root / "train/ash/lost.gif")
    (root / "train/ash/notes.txt").write_text("no image")
    (root / "train/ash/.hidden.gif").write_bytes((root / "train/ash/lost.gif").read_bytes())
    (finding,) = found(inspect(Stock(root)), "skipped-files")
    assert "passed over 1 image in" in finding.sentence
    assert "lost.gif (GIF)" in finding.sentence
    report = inspect(ours(root), verify=True)  # which reads it
    assert not found(report, "skipped-files")
    assert "lost.gif" in found(report, "stock-skips")[0].sentence


def test_a_image_that_our_reader_passes_over_is_named(root):
    shutil.copy(root / "train/ash/0.png", root / "train/ash/without_ending")
    (finding,) = found(inspect(ours(root)), "skipped-files")
    assert "without_ending (PNG)" in finding.sentence


def test_a_image_outside_the_class_folders_is_named(tmp_path):
    class_folders(tmp_path, {"ash": 3, "birch": 3})
    shutil.copy(tmp_path / "ash/0.png", tmp_path / "loose.png")
    assert [*passed_over(tmp_path, None)] == [f"{tmp_path / 'loose.png'} (PNG)"]


@pytest.mark.parametrize("ending", [".bmp", ".gif", ".tif", ".webp"])
@pytest.mark.parametrize("make", [ours, Stock])
def test_the_same_pixels_in_another_container_are_an_overlap(root, make, ending):
    image = Image.new("L", (9, 9), 3)
    image.putdata([k * 3 for k in range(81)])
    image.convert("RGB").save(root / "train/ash/twin.png")
    options = {"lossless": True} if ending == ".webp" else {}
    kept = image if ending == ".gif" else image.convert("RGB")
    name = f"other{'.bmp' if make is Stock and ending == '.gif' else ending}"
    kept.save(root / "val/ash" / name, **options)
    report = inspect(make(root))
    (finding,) = found(report, "overlap")
    assert name in finding.sentence
    assert "twin.png" in finding.sentence


def test_pixels_under_two_labels_are_a_conflict(root):
    image = Image.open(root / "train/ash/0.png")
    image.save(root / "train/birch/twin.bmp")
    (finding,) = found(inspect(ours(root)), "label-conflict")
    assert "twin.bmp" in finding.sentence


def test_a_image_compressed_anew_is_found_when_files_are_verified(root):
    image = blocks(96, 72)
    image.save(root / "train/ash/photo.jpg", quality=95)
    image.resize((64, 48), Image.Resampling.LANCZOS).save(root / "val/ash/small.jpg", quality=60)
    (finding,) = found(inspect(ours(root), verify=True), "near-duplicates")
    assert finding.sentence.startswith("1 of 9 val images look like one in train")
    assert "small.jpg and" in finding.sentence
    assert not found(inspect(ours(root)), "near-duplicates")


def test_other_and_flat_images_are_no_near_duplicates(root):
    Image.new("RGB", (20, 20), (9, 9, 9)).save(root / "train/ash/flat.png")
    Image.new("RGB", (20, 20), (9, 9, 10)).save(root / "val/ash/flat.png")
    blocks(96, 72).save(root / "train/ash/photo.png")
    blocks(96, 72).transpose(Image.Transpose.ROTATE_180).save(root / "val/ash/photo.png")
    report = inspect(ours(root), verify=True)
    assert not report.failed(strict=True), str(report)


def test_files_are_decoded_once_each_in_order(root, capsys):
    paths = [str(root / f"train/ash/{k}.png") for k in (1, 0, 1)]
    seen = check_files(paths, progress=True)
    assert [*seen] == paths[:2]
    assert seen[paths[0]].pixels == check_file(paths[0]).pixels != seen[paths[1]].pixels
    assert capsys.readouterr().err == ""  # a bar on a terminal alone


class Cached(Dataset):
    """The article's cache around a dataset that augments."""

    def __init__(self, data, transform, after=None):
        self.data, self.transform, self.after, self.cache = data, transform, after, {}

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = self.transform(self.data[index][0])
        kept = self.cache[index]
        return kept if self.after is None else self.after(kept), self.data[index][1]


class Held(Stock):
    def __init__(self, root, transform, after=None):
        super().__init__(root)
        self.transform, self.after = transform, after

    def train_dataloader(self):
        data = Cached(ImageFolder(self.root / "train"), self.transform, self.after)
        return DataLoader(data, batch_size=4, shuffle=True)


def test_a_cache_of_augmented_samples_is_found(root):
    frozen = T.Compose([T.RandomCrop(8, padding=3), *FIXED.transforms])
    (finding,) = found(inspect(Held(root, frozen)), "augment-frozen")
    assert finding.level == "error"
    assert "in cache" in finding.sentence
    assert "RandomCrop" in finding.sentence


def test_a_cache_before_the_random_steps_is_a_matter_of_memory(root):
    report = inspect(Held(root, FIXED, T.RandomErasing(1.0)))
    assert not found(report, "augment-frozen")
    (finding,) = found(report, "memory-grows")
    assert finding.level == "warning"


def test_long_lists_of_objects_are_noted():
    class Named(torch.utils.data.TensorDataset):
        pass

    data = Named(torch.rand(16, 3), torch.arange(16) % 2)
    data.names = [str(k) for k in range(60_000)]

    class Own(L.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(data, batch_size=4, shuffle=True)

    (finding,) = found(inspect(Own()), "memory-list")
    assert "60,000" in finding.sentence


def test_a_quick_look_makes_no_sample(root):
    for path in (root / "train").rglob("*.png"):
        path.write_bytes(b"")
    report = inspect(ours(root), samples=False)
    assert "train: 8 samples" in report.sections["Splits"]
    assert not report.failed(strict=True)
    assert report.steps == []


def test_images_without_contrast_are_inspected(tmp_path):
    for split in ("train", "val"):
        for name, level in (("ash", 60), ("birch", 190)):
            for i in range(2):
                solid(tmp_path / split / name / f"{i}.png", level + i + 4 * (split == "val"))
    findings = inspect(ours(tmp_path), verify=True).findings
    assert "near-duplicates" not in {finding.code for finding in findings}
