"""Texts and their classes: tables, JSON lines or folders of files to padded token ids."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .batches.bad_samples import check_on_error
from .core.datamodule import DataModule, Split
from .readers.folders import split_folders
from .sampling.length_buckets import pads_to_bound
from .seeding.sample_seeds import Indices
from .settings.arguments import check_name
from .settings.class_map import ClassMap, given_classes
from .splits.groups import check_disjoint
from .splits.options import SplitOptions
from .splits.split import fingerprint
from .texts.dataset import PaddingSide, TextDataset
from .texts.files import BadText
from .texts.reader import TextTable, read_texts, sort_names
from .texts.tokenizer import (
    EncodedTexts,
    check_vocab_size,
    encode,
    load_tokenizer,
    token_sizes,
    train_tokenizer,
)

log = logging.getLogger(__name__)


class TextDataModule(DataModule):
    """Classify texts of any length in any script.

    A batch of N texts, the longest of L tokens, K classes::

        Batch(inputs=TextInputs(input_ids (N, L) int64, attention_mask (N, L) int64, 1 = token),
              target (N,) int64 in 0..K-1)

    Predict batches are the bare :class:`TextInputs`. ``model(**inputs._asdict(), labels=target)``
    feeds a Hugging Face model. Every text has at least one token, an empty one too.

    A checkpoint brings the classes, the tokenizer and ``max_length`` it was trained with, whatever
    the arguments say.

    Args:
        path: CSV, TSV, JSON lines or Parquet (each may be gzipped, save Parquet), or a folder with
            one folder of text files for each class, or one with such folders under ``train`` and
            as they are there under ``val`` and ``test``.
        text: Column of the texts by name, or by number from 0 in a file without a header row.
        label: Column of the classes: names or whole numbers.
        text_pair: Column of second texts.
        val_path: Validation texts of their own, in the form of ``path``.
        test_path: The same for test.
        predict_path: Texts to be predicted; needs no labels. A folder may hold the files directly.
        tokenizer: A ``tokenizer.json``; None trains byte-level BPE on the train texts.
        vocab_size: The most tokens of a trained tokenizer.
        lowercase: Whether a trained tokenizer folds case.
        max_length: The most tokens of a text; what is longer is cut at the end and counted in
            ``truncated``.
        padding_side: Where padding stands.
        classes: Class names in the order of their index; None: those of the train texts, sorted.
        unknown_classes: What becomes of texts whose class train does not hold.
        separator: None: found. A blank is for lines of ``label text``.
        quote: The quote character, ``""`` for none; None: found.
        encoding: None: UTF-8, or what a byte order mark says.
        header: Whether the first row names the columns; None: it does where columns go by name.
        label_pattern: Regular expression whose first group, or else match, is the class:
            ``"[^:]+"`` makes ``NUM`` of ``NUM:dist``.
        on_error: ``"raise"`` for a file of a folder that cannot be read or decoded, or ``"skip"``:
            it is left out before the split, said in one warning and listed in ``bad_files``.
        max_errors: With ``"skip"``, more files of a folder than this stop the run, as does a class
            of train that loses them all.
        **options: The options of :class:`~datamodules.core.datamodule.DataModule`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        text: int | str = "text",
        label: int | str = "label",
        text_pair: int | str | None = None,
        val_path: str | Path | None = None,
        test_path: str | Path | None = None,
        predict_path: str | Path | None = None,
        tokenizer: str | Path | None = None,
        vocab_size: int = 8_000,
        lowercase: bool = False,
        max_length: int = 512,
        padding_side: PaddingSide = "right",
        classes: Sequence[str] | None = None,
        unknown_classes: Literal["raise", "drop"] = "raise",
        separator: str | None = None,
        quote: str | None = None,
        encoding: str | None = None,
        header: bool | None = None,
        label_pattern: str | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_vocab_size(vocab_size)
        check_on_error(on_error, max_errors)
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1 token, got {max_length}")
        check_name(padding_side, ("right", "left"), "padding_side")
        check_name(unknown_classes, ("raise", "drop"), "unknown_classes")
        for name, value, smallest in (("separator", separator, 1), ("quote", quote, 0)):
            if value is not None and not smallest <= len(value) <= 1:
                raise ValueError(f"{name} must be one character, got {value!r}")
        try:
            re.compile(label_pattern or "")
        except re.error as error:
            raise ValueError(
                f"label_pattern={label_pattern!r} is no regular expression: {error}"
            ) from None
        self._given = given_classes(classes, None)
        self._tables: dict[str, TextTable] = {}
        self._rows: dict[str, tuple[str, Indices]] = {}
        self._encoded: dict[str, EncodedTexts] = {}
        self._bad: dict[str, dict[str, BadText]] = {}

    def prepare_data(self) -> None:
        """Tokenise once on each machine, before its other processes ask: they find the cache."""
        function = self._run().function
        if function is None:
            return  # a single process reads and tokenizes when the data are first used
        predicts = function == "predict"
        splits: tuple[Split, ...] = ("predict",) if predicts else ("train", "val", "test")
        for split in splits:
            self._dataset(split)

    def read(self) -> None:
        """Read texts and labels and decide who is in which split."""
        paths = self._paths()
        if self.fitted and len(paths) > 1 and not paths["train"].exists():
            del paths["train"]  # a checkpoint can be tested without the texts it was trained on
        tables = {part: self._read(path, part) for part, path in paths.items()}
        names = sort_names(name for table in tables.values() for name in table.names)
        index = {name: k for k, name in enumerate(names)}
        labels = {}
        for part, table in tables.items():
            assert table.labels is not None
            labels[part] = np.array([index[name] for name in table.names], np.int64)[table.labels]
        rows = {part: (part, np.arange(len(labels[part]))) for part in tables}
        if "train" in tables:
            given = set(tables) - {"train"}
            cut = self.split_samples(
                len(labels["train"]),
                labels=labels["train"],
                names=names,
                given=given,
                column=tables["train"].extra.__getitem__,
                keys=lambda: tables["train"].keys,
            )
            group = SplitOptions.of(self._split_options).group
            if given and isinstance(group, str):
                check_disjoint({part: t.extra[group].tolist() for part, t in tables.items()}, group)
            rows |= {split: ("train", part) for split, part in cut.items() if split not in given}
            for split in given:
                rows[split] = (split, self._limit_rows(split, rows[split][1], labels[split]))
        self._tables |= tables
        self._rows = rows
        self._map = ClassMap(names, {s: labels[part][chosen] for s, (part, chosen) in rows.items()})

    def _paths(self) -> dict[str, Path]:
        path = Path(self.hparams["path"]).expanduser()
        paths = split_folders(path) if path.is_dir() else {}
        paths.setdefault("train", path)
        for split in ("val", "test"):
            if self.hparams[f"{split}_path"] is not None:
                paths[split] = Path(self.hparams[f"{split}_path"]).expanduser()
        return paths

    def _read(self, path: str | Path, part: str, *, labelled: bool = True) -> TextTable:
        names = ("text", "text_pair", "separator", "quote", "encoding", "header")
        options = {name: self.hparams[name] for name in names}
        if labelled:
            options["label_pattern"] = self.hparams["label_pattern"]
            options["extra"] = SplitOptions.of(self._split_options).columns
        bad = self._bad[part] = {}
        if self.hparams["on_error"] == "skip":
            options["bad"] = bad
        table = read_texts(path, label=self.hparams["label"] if labelled else None, **options)
        if bad:
            self._say_bad(part, len(table.texts), table.names)
        return table

    def _say_bad(self, part: str, read: int, names: Sequence[str]) -> None:
        """Warn of the files that are left out.

        Raises:
            RuntimeError: If they are too many, or all files of a class.
        """
        bad, most = self._bad[part], self.hparams["max_errors"]
        listed = "; ".join(f"{path!r}: {said.reason}" for path, said in list(bad.items())[:3])
        listed += "; ..." * (len(bad) > 3)
        if len(bad) > most:
            raise RuntimeError(
                f"{len(bad)} {part} files cannot be read, more than max_errors={most}: {listed}; "
                "mend them or raise max_errors"
            )
        lost = sorted({said.label for said in bad.values()} - set(names))
        if part == "train" and lost and self.hparams["label_pattern"] is None:
            raise RuntimeError(
                f"no {part} file of class {lost[0]!r} can be read: {listed}; mend them, or take "
                "the class out"
            )
        warnings.warn(
            f"{len(bad)} of {read + len(bad)} {part} files cannot be read and are left out: "
            f"{listed}; bad_files lists them all",
            stacklevel=2,
        )

    @property
    def bad_files(self) -> dict[str, str]:
        """Path and reason of each file of a folder that was left out."""
        return {path: said.reason for bad in self._bad.values() for path, said in bad.items()}

    def _skipped_files(self, split: Split) -> None:
        """Return None: files that cannot be read are left out when the texts are read."""

    def fit(self) -> dict[str, Any]:
        """Classes and tokenizer of the train texts."""
        unknown = self.hparams["unknown_classes"]
        classes, counts = self._map.fit(self._given)
        if unknown == "raise":
            for split in self._rows:
                self._map.encode(split, classes, unknown=unknown)
        if self.hparams["tokenizer"] is not None:
            tokenizer = load_tokenizer(self.hparams["tokenizer"])
        else:
            known, _ = self._map.encode("train", classes, unknown=unknown)
            table, rows = self._tables["train"], self._rows["train"][1][known]
            tokenizer = train_tokenizer(
                table.texts,
                rows,
                pairs=table.pairs,
                vocab_size=self.hparams["vocab_size"],
                lowercase=self.hparams["lowercase"],
            )
        return {
            "classes": classes,
            "class_counts": counts,
            "input_sizes": token_sizes(tokenizer),
            "tokenizer": tokenizer,
            "max_length": self.hparams["max_length"],
        }

    def dataset(self, split: Split) -> TextDataset | None:
        """Texts of one split as tokens of the fitted tokenizer."""
        if split == "predict":
            part, target = "predict", None
            rows = np.arange(len(self._tables[part].texts))
        elif split not in self._rows or not len(self._rows[split][1]):
            return None
        else:
            part, rows = self._rows[split]
            unknown = self.hparams["unknown_classes"]
            known, target = self._map.encode(split, self.classes, unknown=unknown)
            rows = rows[known]
        tokens = self._tokens(part).tokens
        buckets = pads_to_bound(self.sampler) if split == "train" else None
        return TextDataset(
            tokens,
            rows,
            target,
            pad_id=self.input_sizes["pad_id"],
            padding_side=self.hparams["padding_side"],
            describe=self._tables[part].places(),
            widths=None if buckets is None else buckets.bounds(tokens.lengths()[rows]),
        )

    def _tokens(self, part: str) -> EncodedTexts:
        if part not in self._encoded:
            table, longest = self._tables[part], self._known("max_length")
            encoded = encode(
                self._known("tokenizer"), table.texts, pairs=table.pairs, max_length=longest
            )
            if cut := int(encoded.cut.sum()):
                log.info(
                    f"{cut:,} of {len(encoded.cut):,} texts of {table.source} are longer than "
                    f"max_length={longest} tokens and lose their end"
                )
            self._encoded[part] = encoded
        return self._encoded[part]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take classes and tokenizer; texts are tokenised anew where they differ."""
        super().load_state_dict(state_dict)
        self._encoded.clear()

    def read_predict(self) -> None:
        """Read the texts to be predicted."""
        path = self.hparams["predict_path"]
        if path is None:
            raise ValueError(f"{type(self).__name__} has no predict samples; pass predict_path=")
        self._tables["predict"] = self._read(path, "predict", labelled=False)

    @property
    def predict_keys(self) -> list[str] | list[int]:
        """The file of each predicted text, or its row counted from 0."""
        self._ensure_read("predict")
        return self._tables["predict"].keys

    @property
    def truncated(self) -> dict[str, int]:
        """Texts of each split that lost their end at ``max_length``."""
        counts = {}
        for split in ("train", "val", "test", "predict"):
            dataset = self._datasets.get(split)
            if dataset is not None:
                part = split if split == "predict" else self._rows[split][0]
                counts[split] = int(self._tokens(part).cut[dataset.rows.numpy()].sum())
        return counts

    def lengths(self, split: Split) -> Indices:
        """(N,) int64, tokens of each text of a split, in its order."""
        dataset = self._dataset(split)
        return np.empty(0, np.int64) if dataset is None else dataset.lengths()

    def split_fingerprint(self) -> str:
        """Digest of each split's rows and of all texts and labels."""
        parts: list[Any] = []
        for split, (part, rows) in self._rows.items():
            parts += [split, part, rows]
        return fingerprint(
            *parts,
            *(self._tables[part].digest() for part in sorted({p for p, _ in self._rows.values()})),
        )

    def __str__(self) -> str:
        said = super().__str__()
        if self.fitted:
            said += f" of {self.num_classes} classes, {self.input_sizes['vocab_size']:,} tokens"
        cut = {split: count for split, count in self.truncated.items() if count}
        if cut:
            which = ", ".join(f"{split} {count:,}" for split, count in cut.items())
            said += f"; cut to {self.fitted['max_length']} tokens: {which}"
        return said
