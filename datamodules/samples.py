"""Datasets inside installed packages: the first run needs no network and no account."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Literal

from .image_folder import ImageFolderDataModule
from .readers.cache import cache_folder, written_once
from .tabular import TabularDataModule
from .text import TextDataModule
from .texts.docstrings import write_docstrings


def digits(
    *,
    mode: Literal["RGB", "L"] = "L",
    image_size: int = 8,
    flip: bool = False,
    batch_size: int = 64,
    **options: Any,
) -> ImageFolderDataModule:
    """Handwritten digits (Alpaydin and Kaynak 1998), 1,797 images of 8 x 8 in 10 classes.

    scikit-learn's copy, written once as PNG class folders.

    Args:
        mode: As the next, an argument of
            :class:`~datamodules.image_folder.ImageFolderDataModule`.
        image_size: Height and width.
        flip: Off: a flipped digit is not a digit.
        batch_size: Samples per step and device.
        **options: Other arguments of the datamodule.

    Example:
        >>> digits(batch_size=32).num_classes
        10
    """
    root = written_once("digits", _write_digits)
    return ImageFolderDataModule(
        root, mode=mode, image_size=image_size, flip=flip, batch_size=batch_size, **options
    )


def breast_cancer(*, target: str = "diagnosis", **options: Any) -> TabularDataModule:
    """Breast cancer Wisconsin (Street et al. 1993): 569 rows, 30 numbers, malignant or benign.

    scikit-learn's copy.

    Args:
        target: Target column.
        **options: Other arguments of the datamodule.
    """
    return TabularDataModule(_table("breast_cancer"), target, **options)


def wine(*, target: str = "cultivar", **options: Any) -> TabularDataModule:
    """Wine recognition (Forina et al. 1991): 178 rows, 13 numbers, three cultivars.

    scikit-learn's copy.

    Args:
        target: Target column.
        **options: Other arguments of the datamodule.
    """
    return TabularDataModule(_table("wine"), target, **options)


def diabetes(
    *,
    target: str = "progression",
    task: Literal["multiclass", "multilabel", "regression"] = "regression",
    target_scaling: bool = True,
    **options: Any,
) -> TabularDataModule:
    """Diabetes progression (Efron et al. 2004): 442 rows, 10 numbers; regression.

    scikit-learn's copy.

    Args:
        target: Target column.
        task: Regression.
        target_scaling: Whether the target is scaled; models undo it.
        **options: Other arguments of the datamodule.
    """
    return TabularDataModule(
        _table("diabetes"), target, task=task, target_scaling=target_scaling, **options
    )


def docstrings(*, max_length: int = 256, batch_size: int = 128, **options: Any) -> TextDataModule:
    """Docstrings of numpy, scikit-learn, torch and the standard library; the class is the package.

    Read from the installed files.

    Args:
        max_length: Most tokens of a text.
        batch_size: Samples per step and device.
        **options: Other arguments of the datamodule.
    """
    path = write_docstrings(cache_folder())
    return TextDataModule(path, max_length=max_length, batch_size=batch_size, **options)


def _table(name: str) -> Path:
    return written_once(name, lambda folder: _write_table(name, folder)) / f"{name}.csv"


def _write_table(name: str, folder: Path) -> None:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

    load = {"breast_cancer": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}
    data = load[name]()
    names = {"breast_cancer": "diagnosis", "wine": "cultivar", "diabetes": "progression"}
    classes = data.get("target_names")
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*map(str, data.feature_names), names[name]])
        for row, target in zip(data.data.tolist(), data.target.tolist(), strict=True):
            table.writerow([*row, target if classes is None else str(classes[target])])


def _write_digits(folder: Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    data = load_digits()
    for row, (image, label) in enumerate(zip(data.images, data.target, strict=True)):
        target = folder / str(label) / f"{row:04d}.png"
        target.parent.mkdir(exist_ok=True)
        Image.fromarray((image * (255 / 16)).round().astype("uint8")).save(target)
