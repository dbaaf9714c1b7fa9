"""Load CIFAR-10, CIFAR-100 and Fashion-MNIST into memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from filelock import FileLock
from torchvision import datasets

from .batches.mixup import Mix
from .batches.normalize import Normalizer
from .core.datamodule import Split
from .core.image_datamodule import ImageDataModule
from .core.options import DataModuleOptions, refuse_renamed
from .images.channel_stats import normalizer_of
from .images.dataset import ImageDataset
from .images.in_memory import PixelDataset
from .images.options import ImageOptions, with_defaults
from .images.transforms import eval_preset
from .settings.arguments import given_again, name_of
from .splits.split import fingerprint


class CIFAR10DataModule(ImageDataModule):
    """CIFAR-10 (Krizhevsky 2009) from torchvision, with a stratified validation split of train.

    All images are in memory: a batch is one gather, with crop and flip on the whole batch and no
    workers::

        image   (N, 3, 32, 32) float32, normalized
        target  (N,) int64

    Only ``prepare_data`` downloads and verifies. For another dataset of torchvision's form
    (``data``, ``targets``, ``classes``) write a subclass like :class:`CIFAR100DataModule`.

    Args:
        root: Folder for the files.
        dataset_class: Called as ``dataset_class(root, train=..., download=...)``. Default: the
            class attribute ``source``.
        padding: Zeros around a train image before the random crop; 0 for no crop.
        flip: Whether train images are flipped left and right at random.
        train_transform: A transform on a PIL image, in place of crop and flip; images are then
            transformed one by one.
        eval_transform: The same for val, test and predict.
        predict_path: Folder, or list of paths or of images, to predict.
        mixup: Alpha of MixUp in training, such as 0.2; targets become (N, K) float32.
        cutmix: Alpha of CutMix, such as 1.0; with both, each is used half the time.
        image_options: ``mean`` and ``std``, see
            :class:`~datamodules.images.options.ImageOptions`. Default: the class's own.
        **options: See :class:`~datamodules.core.options.DataModuleOptions`.

    Raises:
        FileNotFoundError: From ``setup``, if the files are missing.

    Example:
        >>> class Noise:
        ...     def __init__(self, root, train, download=False):
        ...         self.data = numpy.zeros((20, 32, 32, 3), numpy.uint8)
        ...         self.targets, self.classes = [0, 1] * 10, ["cat", "dog"]
        >>> import numpy
        >>> dm = CIFAR10DataModule(dataset_class=Noise, val_split=4, batch_size=8)
        >>> dm.preview("train").inputs.shape
        torch.Size([8, 3, 32, 32])
    """

    source: ClassVar[type] = datasets.CIFAR10
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)

    def __init__(
        self,
        root: str | Path = "data",
        *,
        dataset_class: Callable[..., Any] | None = None,
        padding: int = 4,
        flip: bool = True,
        train_transform: Callable[[Any], Any] | None = None,
        eval_transform: Callable[[Any], Any] | None = None,
        predict_path: str | Path | list[Any] | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        image_options: ImageOptions | None = None,
        **options: Unpack[DataModuleOptions],
    ) -> None:
        refuse_renamed(CIFAR10DataModule, options)
        super().__init__(**options)
        Mix(mixup=mixup, cutmix=cutmix)  # refuses impossible alphas
        if padding < 0:
            raise ValueError(f"padding must be at least 0, got {padding}")
        self._dataset_class = dataset_class
        self._train_transform, self._eval_transform = train_transform, eval_transform
        self._predict_path = predict_path
        chosen = self._image_options = with_defaults(image_options, ("mean", "std"))
        self.normalizer: Normalizer = normalizer_of(
            "RGB" if len(self.mean) == 3 else "L",
            self.mean if chosen["mean"] is None else chosen["mean"],
            self.std if chosen["std"] is None else chosen["std"],
        )
        self._pixels: dict[str, torch.Tensor] = {}
        self._targets: dict[str, torch.Tensor] = {}
        self._rows: dict[str, np.ndarray[Any, Any]] = {}

    def prepare_data(self) -> None:
        """Download missing files and verify them; nothing if a checkpoint only predicts."""
        if self.fitted and self._run().function == "predict":
            return
        root = Path(self.hparams["root"]).expanduser()
        with suppress(FileNotFoundError):
            for train in (True, False):
                self._open(train=train)
            return
        root.mkdir(parents=True, exist_ok=True)
        # another process may be downloading the same files
        with FileLock(root / ".download.lock"):
            for train in (True, False):
                self._open(train=train, download=True)

    def read(self) -> None:
        """Load the images and split val from train; downloads nothing."""
        if self.hparams["test_split"]:
            raise ValueError(
                "test_split was given, but the dataset has its own test split; leave it out"
            )
        train, test = self._open(train=True), self._open(train=False)
        pixels = {"train": _pixels(train.data), "test": _pixels(test.data)}
        targets = {"train": torch.as_tensor(train.targets), "test": torch.as_tensor(test.targets)}
        channels = pixels["train"].shape[1]
        if channels != len(self.mean):
            raise ValueError(
                f"the images have {channels} channels, the mean and std of {type(self).__name__} "
                f"{len(self.mean)}; write a subclass with its own, as FashionMNISTDataModule is"
            )
        self._names = [str(name) for name in train.classes]
        cut = self.split_samples(
            len(targets["train"]), labels=targets["train"], names=self._names, given=["test"]
        )
        test_rows = np.arange(len(targets["test"]))
        self._rows = {**cut, "test": self._limit_rows("test", test_rows, targets["test"])}
        for split, whole in (("train", "train"), ("val", "train"), ("test", "test")):
            rows = torch.from_numpy(self._rows[split])
            self._pixels[split] = pixels[whole][rows]
            self._targets[split] = targets[whole][rows].long()

    def fit(self) -> dict[str, Any]:
        """Return class names and counts of the train split."""
        counts = torch.bincount(self._targets["train"], minlength=len(self._names))
        return {
            "classes": self._names,
            "class_counts": counts.tolist(),
            "input_sizes": {"input_shape": list(self._pixels["train"].shape[1:])},
        }

    def dataset(self, split: Split) -> Any:
        """Return the images of one split."""
        train = split == "train"
        own = self.train_transform if train else self.eval_transform
        mode: Any = "RGB" if len(self.mean) == 3 else "L"
        if split == "predict":
            preset = eval_preset(self.input_sizes["input_shape"][-1])
            return ImageDataset(self._predict_sources, None, own or preset, mode=mode)
        pixels, targets = self._pixels[split], self._targets[split]
        if not len(targets):
            return None
        keys, part = self._rows[split], "test" if split == "test" else "train"
        if own is not None:
            return ImageDataset(pixels, targets, own, mode=mode, keys=keys, part=part)
        return PixelDataset(
            pixels,
            targets,
            padding=self.hparams["padding"] * train,
            flip=self.hparams["flip"] and train,
            keys=keys,
            part=part,
        )

    def split_fingerprint(self) -> str:
        """Return a digest of the rows of each split and of all labels."""
        labels = torch.cat([self._targets[s] for s in ("train", "val", "test")])
        return fingerprint(*(self._rows[s] for s in ("train", "val", "test")), labels)

    def _open(self, *, train: bool, download: bool = False) -> Any:
        make: Any = given_again(self._dataset_class, "dataset_class") or self.source
        root = str(Path(self.hparams["root"]).expanduser())
        try:
            return make(root, train=train, download=download)
        except RuntimeError as error:
            if download:
                raise
            raise FileNotFoundError(
                f"root={root!r} does not hold the files of {name_of(make)}, or they are damaged "
                f"({error}); call dm.prepare_data() first, which downloads and verifies them"
            ) from error


class CIFAR100DataModule(CIFAR10DataModule):
    """CIFAR-100 (Krizhevsky 2009): 100 classes, options as :class:`CIFAR10DataModule`."""

    source = datasets.CIFAR100
    mean = (0.5071, 0.4865, 0.4409)
    std = (0.2673, 0.2564, 0.2762)


class FashionMNISTDataModule(CIFAR10DataModule):
    """Fashion-MNIST (Xiao et al. 2017): 1 x 28 x 28, options as :class:`CIFAR10DataModule`."""

    source = datasets.FashionMNIST
    mean = (0.2860,)
    std = (0.3530,)


def _pixels(data: Any) -> torch.Tensor:
    """Convert torchvision's (N, H, W, C) array or (N, H, W) tensor to (N, C, H, W) uint8."""
    pixels = torch.as_tensor(np.asarray(data))
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    return pixels.permute(0, 3, 1, 2).contiguous()
