"""Image folders, or a folder of images with a table of labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from .batches.bad_samples import check_on_error
from .batches.mixup import Mix
from .batches.normalize import Normalizer
from .core.datamodule import SPLITS, Split
from .core.image_datamodule import ImageDataModule
from .core.inside import ram_cache_of
from .images.channel_stats import channel_statistics, normalizer_of
from .images.dataset import ImageDataset
from .images.label_table import is_multilabel, read_label_table
from .images.listing import Listing, list_classes, matched, seen_from
from .images.ram_cache import check_cache
from .images.sources import ImageSources
from .images.transforms import eval_preset, train_preset
from .readers.folders import check_roots, has_folders, split_folders
from .readers.path_list import PathList
from .settings.class_map import ClassMap, given_classes
from .splits.groups import check_disjoint
from .splits.options import SplitOptions
from .splits.split import fingerprint


class ImageFolderDataModule(ImageDataModule):
    r"""Images in class folders, or in any folder with a table of names and labels.

    Three layouts, found by looking::

        root/train/cat/1.jpg     root/cat/1.jpg      root/1.jpg, root/labels.csv:
        root/val/cat/2.jpg       root/dog/2.jpg        image,breed
        root/test/dog/3.jpg                            1.jpg,pug

    The first keeps its parts (``valid`` and ``validation`` are val too) and cuts a missing val out
    of train; the others are cut by class, seeded. The class list comes from train, or from the
    user, and every split uses it. A batch::

        image   (N, C, H, W) float32, normalised     C = 3, or 1 with mode="L"
        target  (N,) int64, or (N, K) float32 of 0 and 1 with several labels a row

    ``split_options={"group": ...}`` (``"time"``, ``"column"``) names a column of the table; without
    a table it is a regular expression on the path below the root, whose first group, or else
    match, is the value: ``r"patient\d+"``.

    Files are read as they lie: any mode, orientation applied, hidden files and clutter left out.

    Args:
        root: A folder, or several that are joined.
        table: CSV or Parquet with one row an image; relative to ``root`` or as it is.
        file_column: Column of file names, with or without ending, relative to ``root``.
        label_column: Column of labels; or several columns of 0 and 1 for several labels a row.
        label_separator: Parts several labels in one cell, such as ``" "``.
        classes: Class names in the order of their index; None: the sorted names in train.
        class_to_idx: The same as a dict, as torchvision writes it.
        unknown_classes: What becomes of evaluation images of a class that train lacks:
            ``"raise"``, or ``"drop"`` (counted in a warning).
        image_size: Height and width of the presets.
        mode: ``"RGB"`` or ``"L"``.
        mean: One value a channel, scale 0..1; None: ImageNet's.
        std: As ``mean``.
        normalize: ``"train"`` learns mean and std from the train images, as evaluation sees them
            (4,096 of them where there are more), and keeps them in the checkpoint.
        pack: What ``scripts/pack_images.py`` made of ``root``: the same split and labels, and from
            a slice pack the same pixels. Refused where a file is not in it or changed since.
        cache: ``"ram"`` keeps each decoded image of train, val and test from its first use on,
            once for all workers, before any random step: the same pixels. Files that change during
            a run are not read again. ``print(dm)`` says what is kept.
        cache_bytes: The most that it takes; None: half of the free memory. Images beyond it are
            decoded each time, and a warning says so.
        draft: Decode large JPEGs at 1/2, 1/4 or 1/8 of their size, as long as the shorter side
            keeps twice ``image_size``: less work for photos from cameras, but it changes pixels (by
            0.2 of 255 on average after evaluation's resizing of a photo of 2000 x 1500, and more
            where a crop is enlarged).
        crop_first: Draw a transform's crop before the pixels are made, and resize by torch: about
            twice as fast, the same random numbers, and pixels that differ from those of Pillow's
            resizing by less than 0.05 of 255 on average. False: every transform is called as it is.
        flip: Whether the train preset flips left and right; not for digits or text.
        train_transform: Any callable on a PIL image or uint8 tensor; None: the preset.
        eval_transform: The same for val, test and predict.
        predict_path: A folder, or a list of paths or of images, to be predicted.
        mixup: Alpha of MixUp in training, such as 0.2; targets become (N, K) float32.
        cutmix: Alpha of CutMix, such as 1.0; with both, each comes half the time.
        on_error: ``"raise"`` for a file that cannot be read, or ``"skip"``: its batch is smaller,
            ``bad_files`` lists it, and an epoch ends with one warning. Of a predict batch 0 rows
            may be left; nothing left of another batch, or of a class in train, is an error.
        max_errors: With ``"skip"``, more files of a split than this stop the run.
        **options: See :class:`~datamodules.core.datamodule.DataModule`.

    Raises:
        FileNotFoundError: If ``root`` does not exist.
        ValueError: If folder, table or classes do not fit; the message says what was found.
    """

    def __init__(
        self,
        root: str | Path | list[str] | None = None,
        *,
        table: str | Path | None = None,
        file_column: str = "file",
        label_column: str | list[str] = "label",
        label_separator: str | None = None,
        classes: list[str] | None = None,
        class_to_idx: dict[str, int] | None = None,
        unknown_classes: Literal["raise", "drop"] = "raise",
        image_size: int = 224,
        mode: Literal["RGB", "L"] = "RGB",
        mean: list[float] | None = None,
        std: list[float] | None = None,
        normalize: Literal["train"] | None = None,
        flip: bool = True,
        pack: str | Path | None = None,
        cache: Literal["ram"] | None = None,
        cache_bytes: int | None = None,
        draft: bool = False,
        crop_first: bool = True,
        train_transform: Callable[[Any], Any] | None = None,
        eval_transform: Callable[[Any], Any] | None = None,
        predict_path: str | Path | list[Any] | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        Mix(mixup=mixup, cutmix=cutmix)  # refuses impossible alphas
        if mode not in ("RGB", "L"):
            raise ValueError(f"mode must be 'RGB' or 'L', got {mode!r}")
        if unknown_classes not in ("raise", "drop"):
            raise ValueError(f"unknown_classes must be 'raise' or 'drop', got {unknown_classes!r}")
        check_on_error(on_error, max_errors)
        check_cache(cache, cache_bytes)
        if not isinstance(draft, bool):
            raise ValueError(f"draft must be True or False, got {draft!r}")
        if draft and pack is not None:
            raise ValueError("a pack is decoded at the size it was made for; leave draft out")
        if not isinstance(crop_first, bool):
            raise ValueError(f"crop_first must be True or False, got {crop_first!r}")
        if image_size < 1:
            raise ValueError(f"image_size must be at least 1, got {image_size}")
        roots = root if isinstance(root, list | tuple) else [] if root is None else [root]
        self._roots = [os.fspath(r) for r in roots]
        self._given = given_classes(classes, class_to_idx)
        self._train_transform, self._eval_transform = train_transform, eval_transform
        self._predict_path = predict_path
        self.multilabel = is_multilabel(table, label_column, label_separator)
        self.task = "multilabel" if self.multilabel else "multiclass"
        self.normalizer: Normalizer = normalizer_of(mode, mean, std, normalize)
        self._found_in: list[Path] = []
        self._digest: str | None = None
        self._draft = image_size if draft else None
        self._images = ImageSources({}, mode=mode, draft=self._draft)

    # --- what the base asks for --------------------------------------------------------------

    def read(self) -> None:
        """List the files and decide the splits."""
        if not self._roots:
            raise ValueError("pass root=, the folder of the images")
        roots = self._found_in = check_roots(self._roots)
        if self.hparams["table"] is None:
            self._read_folders(roots)
        else:
            self._read_table(roots)

    def _read_folders(self, roots: list[Path]) -> None:
        # under the class list of a checkpoint, new test images need no train beside them
        layouts = [split_folders(root, need_train=not self.fitted) for root in roots]
        if any(layouts) and not all(layouts):
            bare = next(str(r) for r, layout in zip(roots, layouts, strict=True) if not layout)
            raise ValueError(f"{bare} has no train/ while another root has; give all one layout")
        if not any(layouts):
            listing = list_classes(roots)
            labels = _labels([listing], listing.classes)
            self._hold(listing.paths, labels, listing.classes, given={})
            return
        listings: list[Listing] = []
        names: set[str] = set()
        ends = {"train": range(0)}
        for split in ("train", "val", "test"):
            folders = [layout[split] for layout in layouts if split in layout]
            if split == "test" and folders and not any(has_folders(f) for f in folders):
                warnings.warn(
                    f"{folders[0]} holds no class folders, so it is not the test split; to predict "
                    "its images pass it as predict_path",
                    stacklevel=2,
                )
                continue
            if folders:
                listing = list_classes(folders)
                first = sum(len(there.paths) for there in listings)
                ends[split] = range(first, first + len(listing.paths))
                listings.append(listing)
                # an empty folder is a class of train, and nothing at all in val
                names |= {name for name, count in listing.folders if count or split == "train"}
        paths = PathList.joined([listing.paths.encoded() for listing in listings])
        self._hold(paths, _labels(listings, sorted(names)), sorted(names), given=ends)

    def _read_table(self, roots: list[Path]) -> None:
        if len(roots) > 1:
            raise ValueError("a table goes with one root, got several")
        table = read_label_table(
            Path(self.hparams["table"]).expanduser(),
            roots[0],
            file_column=self.hparams["file_column"],
            label_column=self.hparams["label_column"],
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
        """Keep paths and labels by split; labels stay in terms of the names found."""
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
        if self.hparams["pack"] is not None:
            self._images.open_pack(self.hparams["pack"], self._found_in)

    def _preset(self, part: str) -> Callable[[Any], Any]:
        size = self.hparams["image_size"]
        return (
            train_preset(size, flip=self.hparams["flip"]) if part == "train" else eval_preset(size)
        )

    def fit(self) -> dict[str, Any]:
        """Class list and counts of the train split."""
        size = self.hparams["image_size"]
        if not len(self._images.paths["train"]):
            raise ValueError("val and test take all the images; lower val_split or test_split")
        classes, counts = self._map.fit(self._given)
        for split in sorted(self._images.paths, key=SPLITS.index):
            self._map.encode(split, classes, unknown=self.hparams["unknown_classes"])
        fitted: dict[str, Any] = {
            "classes": classes,
            "class_counts": counts,
            "input_sizes": {"input_shape": [len(self.normalizer.mean), size, size]},
        }
        if self.hparams["normalize"] == "train":
            skip = self.hparams["on_error"] == "skip"
            images = self._images.of("train", np.arange(len(self._images.paths["train"])))
            data = ImageDataset(images, None, self.eval_transform, mode=self.hparams["mode"])
            fitted["mean"], fitted["std"] = channel_statistics(data, skip=skip)
        return fitted

    def _ensure_read(self, stage: str | None) -> None:
        super()._ensure_read(stage)
        self._set_normalizer()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was fitted; see the base."""
        super().load_state_dict(state_dict)
        self._set_normalizer()

    def _set_normalizer(self) -> None:
        if "mean" in self.fitted:
            self.normalizer = Normalizer(self.fitted["mean"], self.fitted["std"])

    def dataset(self, split: Split) -> ImageDataset | None:
        """Images of one split under the class map of train."""
        options = {"mode": self.hparams["mode"], "fast": self.hparams["crop_first"]}
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
        """Digest of each split's files, relative to their roots, and of their classes."""
        if self._digest is not None:  # asked for with each checkpoint; 200,000 files cost 0.7 s
            return self._digest
        parts: list[Any] = []
        for split in ("train", "val", "test"):
            names = "\n".join(seen_from(self._found_in, self._images.paths.get(split, [])))
            parts += [split, names, self._map.labels.get(split, np.empty(0))]
        self._digest = fingerprint(*parts, "\n".join(self._map.names))
        return self._digest


def _labels(listings: Sequence[Listing], names: Sequence[str]) -> np.ndarray[Any, Any]:
    """(N,) int64 class of each path, as its place in ``names``."""
    index = {name: k for k, name in enumerate(names)}
    folders = [folder for listing in listings for folder in listing.folders]
    classes = np.array([index.get(name, 0) for name, _ in folders], np.int64)  # 0: an empty folder
    return np.repeat(classes, [count for _, count in folders])
