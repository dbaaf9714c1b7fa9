"""Load images from class folders, or from a folder and a table of labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch

from .batches.bad_samples import check_on_error
from .batches.mixup import Mix
from .batches.normalize import Normalizer
from .core.accessors import ram_cache_of
from .core.datamodule import SPLITS, Split
from .core.image_datamodule import ImageDataModule
from .core.options import DataModuleOptions, refuse_renamed
from .images.channel_stats import channel_statistics, normalizer_of
from .images.class_folders import read_class_folders
from .images.dataset import ImageDataset
from .images.label_table import is_multilabel, read_label_table
from .images.listing import matched, seen_from
from .images.options import ImageOptions, with_defaults
from .images.sources import ImageSources
from .images.transforms import eval_preset, train_preset
from .readers.data_frame import Frame, placeholder
from .readers.folders import check_roots
from .readers.path_list import PathList
from .settings.arguments import check_name, given_again
from .settings.class_map import ClassMap, given_classes
from .splits.groups import check_disjoint
from .splits.options import SplitOptions
from .splits.split import fingerprint


class ImageFolderDataModule(ImageDataModule):
    r"""Images in class folders, or in any folder with a table of file names and labels.

    Three layouts are detected::

        root/train/cat/1.jpg     root/cat/1.jpg      root/1.jpg, root/labels.csv:
        root/val/cat/2.jpg       root/dog/2.jpg        image,breed
        root/test/dog/3.jpg                            1.jpg,pug

    The first keeps its splits (``valid`` and ``validation`` are val too); a missing val is split
    from train. The others are split by class, seeded. Class names come from train, or from the
    user, and are the same for every split. A batch::

        image   (N, C, H, W) float32, normalized     C = 3, or 1 with mode="L"
        target  (N,) int64, or (N, K) float32 of 0 and 1 for multi-label data

    ``split_options={"group": ...}`` (``"time"``, ``"column"``) names a column of the table;
    without a table it is a regular expression for the path below the root. Its first group, or
    else its match, is the value: ``r"patient\d+"``.

    Files are read as they are: any mode, EXIF orientation applied, hidden files left out.

    Args:
        root: Folder of the images, or several that are joined.
        table: CSV or Parquet file (relative to ``root`` or to the working directory), or a polars
            or pandas DataFrame, with one row per image.
        file_column: Column of file names, with or without ending, relative to ``root``.
        target: Column of labels; or several columns of 0 and 1 for multi-label data.
        label_separator: Separates several labels in one cell, such as ``" "``.
        val_path: Class folders for validation; ``root`` is then the train data.
        test_path: Class folders for test.
        predict_path: Folder, or list of paths or of images, to predict.
        classes: Class names in the order of their index. Default: the sorted names in train.
        class_to_idx: The same as a dict, as in torchvision.
        unknown_classes: ``"raise"``, or ``"drop"`` (with a warning that counts them) evaluation
            images of a class that is not in train.
        image_size: Height and width of the default transforms.
        mode: ``"RGB"`` or ``"L"``.
        flip: Whether the default train transform flips left and right; not for digits or text.
        train_transform: Any callable on a PIL image or uint8 tensor. Default: random resized crop
            and flip.
        eval_transform: The same for val, test and predict. Default: resize and center crop.
        mixup: Alpha of MixUp in training, such as 0.2; targets become (N, K) float32.
        cutmix: Alpha of CutMix, such as 1.0; with both, each is used half the time.
        on_error: ``"raise"`` for a file that cannot be read, or ``"skip"``: its batch is smaller,
            ``bad_files`` lists it, and an epoch ends with one warning. A predict batch may end up
            empty; any other empty batch, or an empty class in train, is an error.
        max_errors: With ``"skip"``, the run stops at more bad files in a split than this.
        image_options: Normalization, cache, pack and fast decoding, see
            :class:`~datamodules.images.options.ImageOptions`.
        **options: See :class:`~datamodules.core.options.DataModuleOptions`.

    Raises:
        FileNotFoundError: If ``root`` does not exist.
        ValueError: If folder, table or classes do not fit; the message says what was found.

    Example:
        >>> import numpy, tempfile
        >>> from PIL import Image
        >>> root = Path(tempfile.mkdtemp())
        >>> for k in range(6):
        ...     folder = root / ("cat" if k % 2 else "dog")
        ...     folder.mkdir(exist_ok=True)
        ...     Image.fromarray(numpy.full((8, 8, 3), 40 * k, "uint8")).save(folder / f"{k}.png")
        >>> dm = ImageFolderDataModule(root, image_size=8, val_split=2, test_split=0, num_workers=0)
        >>> dm.classes, dm.preview("val").inputs.shape
        (['cat', 'dog'], torch.Size([2, 3, 8, 8]))
    """

    def __init__(
        self,
        root: str | Path | list[str] | None = None,
        *,
        table: str | Path | Frame | None = None,
        file_column: str = "file",
        target: str | list[str] = "label",
        label_separator: str | None = None,
        val_path: str | Path | None = None,
        test_path: str | Path | None = None,
        predict_path: str | Path | list[Any] | None = None,
        classes: list[str] | None = None,
        class_to_idx: dict[str, int] | None = None,
        unknown_classes: Literal["raise", "drop"] = "raise",
        image_size: int = 224,
        mode: Literal["RGB", "L"] = "RGB",
        flip: bool = True,
        train_transform: Callable[[Any], Any] | None = None,
        eval_transform: Callable[[Any], Any] | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
        image_options: ImageOptions | None = None,
        **options: Unpack[DataModuleOptions],
    ) -> None:
        refuse_renamed(ImageFolderDataModule, options)
        self._table, table = table, placeholder(table)  # the hyperparameters are the locals here
        super().__init__(**options)
        Mix(mixup=mixup, cutmix=cutmix)  # refuses impossible alphas
        check_name(mode, ("RGB", "L"), "mode")
        check_name(unknown_classes, ("raise", "drop"), "unknown_classes")
        check_on_error(on_error, max_errors)
        if image_size < 1:
            raise ValueError(f"image_size must be at least 1, got {image_size}")
        own_paths = [name for name in ("val_path", "test_path") if self.hparams[name] is not None]
        if table is not None and own_paths:
            raise ValueError(
                f"{own_paths[0]} takes class folders, so it cannot be used with table=; name a "
                'column of the table: split_options={"column": ...}'
            )
        roots = root if isinstance(root, list | tuple) else [] if root is None else [root]
        self._roots = [os.fspath(r) for r in roots]
        self._given = given_classes(classes, class_to_idx)
        self._train_transform, self._eval_transform = train_transform, eval_transform
        self._predict_path = predict_path
        self.multilabel = is_multilabel(table, target, label_separator)
        self.task = "multilabel" if self.multilabel else "multiclass"
        self._image_options = chosen = with_defaults(image_options)
        self.normalizer: Normalizer = normalizer_of(
            mode, chosen["mean"], chosen["std"], chosen["normalize"]
        )
        self._found_in: list[Path] = []
        self._digest: str | None = None
        self._draft = image_size if chosen["draft"] else None
        self._images = ImageSources({}, mode=mode, draft=self._draft)

    # --- hooks of DataModule ------------------------------------------------------------------

    def read(self) -> None:
        """List the files and decide the splits."""
        if not self._roots:
            raise ValueError("pass root=, the folder of the images")
        roots = self._found_in = check_roots(self._roots)
        if self._table is not None:
            self._read_table(roots)
            return
        paths = {split: self.hparams[f"{split}_path"] for split in ("val", "test")}
        own = {split: check_roots([path])[0] for split, path in paths.items() if path is not None}
        self._found_in = [*roots, *own.values()]
        # a checkpoint has the classes: new test images need no train images
        found = read_class_folders(roots, own, need_train=not self.fitted)
        self._hold(found.paths, found.labels, found.names, given=found.splits)

    def _read_table(self, roots: list[Path]) -> None:
        if len(roots) > 1:
            raise ValueError("a table goes with one root, got several")
        table = read_label_table(
            given_again(self._table, "table"),
            roots[0],
            file_column=self.hparams["file_column"],
            target=self.hparams["target"],
            label_separator=self.hparams["label_separator"],
            extra=SplitOptions.of(self._split_options).columns,
        )
        self._hold(PathList(table.paths), table.labels, table.classes, given={}, column=table.extra)

    def _hold(
        self,
        paths: PathList,
        labels: np.ndarray[Any, Any],
        names: list[str],
        *,
        given: dict[str, range],
        column: Mapping[str, Any] | None = None,
    ) -> None:
        """Split the images and store paths and labels; labels are indices into ``names``."""
        rows = np.arange(len(paths))
        parts = {split: rows[there.start : there.stop] for split, there in given.items()}
        uncut = parts.pop("train", rows)
        stratify = len(uncut) and not self.multilabel
        relative = list(seen_from(self._found_in, paths)) if self._split_options else []
        cut = self.split_samples(
            len(uncut),
            labels=labels[uncut] if stratify else None,
            names=names,
            given=parts,
            column=lambda name: (column[name] if column else matched(name, relative))[uncut],
            keys=lambda: [relative[row] for row in uncut],
        )
        for split, rows in parts.items():
            parts[split] = self._limit_rows(split, rows, None if self.multilabel else labels[rows])
        parts |= {split: uncut[part] for split, part in cut.items() if split not in parts}
        group = SplitOptions.of(self._split_options).group
        if given and isinstance(group, str):
            of = matched(group, relative)
            check_disjoint({s: of[parts[s]].tolist() for s in SPLITS if s in parts}, repr(group))
        self._map = ClassMap(names, {split: labels[part] for split, part in parts.items()})
        self._images = ImageSources(
            {split: paths.take(part) for split, part in parts.items()},
            mode=self.hparams["mode"],
            draft=self._draft,
        )
        if self._image_options["pack"] is not None:
            self._images.open_pack(self._image_options["pack"], self._found_in)

    def _preset(self, part: str) -> Callable[[Any], Any]:
        size = self.hparams["image_size"]
        return (
            train_preset(size, flip=self.hparams["flip"]) if part == "train" else eval_preset(size)
        )

    def fit(self) -> dict[str, Any]:
        """Return class names and counts of the train split."""
        size = self.hparams["image_size"]
        if not len(self._images.paths["train"]):
            raise ValueError("val and test take all images; lower val_split or test_split")
        classes, counts = self._map.fit(self._given)
        for split in sorted(self._images.paths, key=SPLITS.index):
            self._map.encode(split, classes, unknown=self.hparams["unknown_classes"])
        fitted: dict[str, Any] = {
            "classes": classes,
            "class_counts": counts,
            "input_sizes": {"input_shape": [len(self.normalizer.mean), size, size]},
        }
        if self._image_options["normalize"] == "train":
            skip = self.hparams["on_error"] == "skip"
            images = self._images.of("train", np.arange(len(self._images.paths["train"])))
            data = ImageDataset(images, None, self.eval_transform, mode=self.hparams["mode"])
            fitted["mean"], fitted["std"] = channel_statistics(data, skip=skip)
        return fitted

    def dataset(self, split: Split) -> ImageDataset | None:
        """Return the images of one split, with the class indices of train."""
        options: Any = {
            "mode": self.hparams["mode"],
            "fast": self._image_options["fast_transforms"],
        }
        if split == "predict":
            given = self._images.drafted(self._predict_sources)
            return ImageDataset(given, None, self.eval_transform, **options)
        transform = self.train_transform if split == "train" else self.eval_transform
        if not len(self._images.paths.get(split, ())):
            return None
        rows, targets = self._map.encode(
            split, self.classes, unknown=self.hparams["unknown_classes"]
        )
        cache, images = ram_cache_of(self), self._images
        sources = images.of(split, rows) if cache is None else images.cached(split, rows, cache)
        return ImageDataset(sources, torch.from_numpy(targets), transform, **options)

    def split_fingerprint(self) -> str:
        """Return a digest of each split's files, relative to their roots, and of their classes."""
        if self._digest is not None:  # needed for each checkpoint; 200,000 files cost 0.7 s
            return self._digest
        parts: list[Any] = []
        for split in ("train", "val", "test"):
            names = "\n".join(seen_from(self._found_in, self._images.paths.get(split, [])))
            parts += [split, names, self._map.labels.get(split, np.empty(0))]
        self._digest = fingerprint(*parts, "\n".join(self._map.names))
        return self._digest
