"""Load labeled texts from tables, JSON lines, folders, DataFrames or lists as token ids."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from .batches.bad_samples import check_on_error
from .core.datamodule import DataModule, Split
from .core.options import DataModuleOptions, refuse_renamed
from .core.settable import SettablePredictPath
from .readers.data_frame import Frame, placeholder
from .sampling.length_buckets import pads_to_bound
from .seeding.sample_seeds import Indices
from .settings.arguments import check_name, given_again
from .settings.class_map import ClassMap, given_classes
from .splits.groups import check_disjoint
from .splits.options import SplitOptions
from .splits.split import fingerprint
from .texts.bad_files import report_bad_files
from .texts.dataset import PaddingSide, TextDataset
from .texts.files import BadText
from .texts.in_memory import check_lists, split_sources
from .texts.reader import TextTable, check_format, join_labels, read_texts
from .texts.tokenizer import (
    EncodedTexts,
    check_vocab_size,
    encode,
    load_tokenizer,
    token_sizes,
    train_tokenizer,
)

log = logging.getLogger(__name__)


class TextDataModule(SettablePredictPath, DataModule):
    """Classify texts of any length in any script.

    A batch of N texts, the longest of L tokens, K classes::

        Batch(inputs=TextInputs(input_ids (N, L) int64, attention_mask (N, L) int64, 1 = token),
              target (N,) int64 in 0..K-1)

    Predict batches are :class:`TextInputs`. Call a Hugging Face model with
    ``model(**inputs._asdict(), labels=target)``. Every text has at least one token, even if it is
    empty.

    A checkpoint restores its classes, tokenizer and ``max_length``, whatever the arguments are.

    Args:
        path: CSV, TSV, JSON lines or Parquet (all but Parquet may be gzipped); a folder with one
            folder of text files per class, or with such folders in ``train`` and, if they exist,
            ``val`` and ``test``; a polars or pandas DataFrame; or a list of texts.
        target: Column of the classes by name, or by number from 0 in a file without a header row;
            for a list of texts the list of labels. Labels are names or whole numbers.
        text: Column of the texts.
        text_pair: Column of second texts.
        val_path: Validation data, as ``path`` but no list.
        test_path: Test data, as ``val_path``.
        predict_path: Texts to predict, as ``path`` without labels; a folder may hold the files.
        tokenizer: A ``tokenizer.json``. Default: byte-level BPE, trained on the train texts.
        vocab_size: Largest vocabulary of a trained tokenizer.
        lowercase: Whether a trained tokenizer lowercases.
        max_length: Most tokens of a text; longer texts are truncated and counted in ``truncated``.
        padding_side: ``"right"`` or ``"left"``.
        classes: Class names in the order of their index. Default: the sorted names in train.
        unknown_classes: ``"raise"``, or ``"drop"`` (with a warning that counts them) evaluation
            texts of a class that is not in train.
        separator: Separator of fields. Default: detected. ``" "`` is for lines of ``label text``.
        quote: Quote character, ``""`` for none. Default: detected.
        encoding: Encoding of files. Default: UTF-8, or that of a byte order mark.
        header: Whether the first row has column names. Default: True for columns by name.
        label_pattern: Regular expression whose first group, or else match, is the class:
            ``"[^:]+"`` turns ``NUM:dist`` into ``NUM``.
        on_error: ``"raise"`` for a file of a folder that cannot be read or decoded, or ``"skip"``:
            it is left out before the split, with a warning, and listed in ``bad_files``.
        max_errors: With ``"skip"``, more bad files than this are an error, as is a train class
            that loses all its files.
        **options: See :class:`~datamodules.core.options.DataModuleOptions`.

    Example:
        >>> texts = ["a red fox", "a blue sea"] * 10
        >>> dm = TextDataModule(texts, target=["animal", "place"] * 10, vocab_size=300)
        >>> dm.classes, dm.preview("val").inputs.input_ids.shape[0]
        (['animal', 'place'], 2)
    """

    def __init__(
        self,
        path: str | Path | Frame | list[str],
        target: int | str | list[Any] = "label",
        *,
        text: int | str = "text",
        text_pair: int | str | None = None,
        val_path: str | Path | Frame | None = None,
        test_path: str | Path | Frame | None = None,
        predict_path: str | Path | Frame | list[str] | None = None,
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
        **options: Unpack[DataModuleOptions],
    ) -> None:
        refuse_renamed(TextDataModule, options)
        self._sources = {"train": path, "val": val_path, "test": test_path}
        self._predict_path, self._target = predict_path, target
        # the hyperparameters are the locals here: they keep a list's name, not its texts
        path, target = placeholder(path), placeholder(target)
        val_path, test_path = placeholder(val_path), placeholder(test_path)
        predict_path = placeholder(predict_path)
        super().__init__(**options)
        check_vocab_size(vocab_size)
        check_on_error(on_error, max_errors)
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1 token, got {max_length}")
        check_name(padding_side, ("right", "left"), "padding_side")
        check_name(unknown_classes, ("raise", "drop"), "unknown_classes")
        check_format(separator=separator, quote=quote, label_pattern=label_pattern)
        self._given = given_classes(classes, None)
        self._tables: dict[str, TextTable] = {}
        self._rows: dict[str, tuple[str, Indices]] = {}
        self._encoded: dict[str, EncodedTexts] = {}
        self._bad: dict[str, dict[str, BadText]] = {}

    def prepare_data(self) -> None:
        """Tokenize once on each machine; its other processes then use the cache."""
        function = self._run().function
        if function is None:
            return  # a single process reads and tokenizes when the data are first used
        predicts = function == "predict"
        splits: tuple[Split, ...] = ("predict",) if predicts else ("train", "val", "test")
        for split in splits:
            self._dataset(split)

    def read(self) -> None:
        """Read texts and labels and decide the splits."""
        paths = split_sources(self._sources)
        if self.fitted and len(paths) > 1 and not paths["train"].exists():
            del paths["train"]  # a checkpoint can be tested without the texts it was trained on
        tables = {part: self._read(path, part) for part, path in paths.items()}
        names, labels = join_labels(tables)
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

    def _read(self, path: Any, part: str, *, labelled: bool = True) -> TextTable:
        argument = "path" if part == "train" else f"{part}_path"
        given_again(str(path) if isinstance(path, Path) else path, argument)
        names = ("text", "text_pair", "separator", "quote", "encoding", "header")
        options: dict[str, Any] = {name: self.hparams[name] for name in names}
        bad = self._bad[part] = {}
        if self.hparams["on_error"] == "skip":
            options["bad"] = bad
        if labelled:
            options["label_pattern"] = self.hparams["label_pattern"]
            options["extra"] = SplitOptions.of(self._split_options).columns
        target = given_again(self._target, "target") if labelled else None
        check_lists(path, target, options, argument)
        table = read_texts(path, label=target, argument=argument, **options)
        report_bad_files(
            bad,
            part,
            read=len(table.texts),
            classes=table.names if part == "train" and not self.hparams["label_pattern"] else None,
            max_errors=self.hparams["max_errors"],
        )
        return table

    @property
    def bad_files(self) -> dict[str, str]:
        """Path and reason of each file of a folder that was left out."""
        return {path: file.reason for bad in self._bad.values() for path, file in bad.items()}

    def _skipped_files(self, split: Split) -> None:
        """Return None: bad files are left out when texts are read."""

    def fit(self) -> dict[str, Any]:
        """Return classes and tokenizer of the train texts."""
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
            options = {name: self.hparams[name] for name in ("vocab_size", "lowercase")}
            tokenizer = train_tokenizer(table.texts, rows, pairs=table.pairs, **options)
        return {
            "classes": classes,
            "class_counts": counts,
            "input_sizes": token_sizes(tokenizer),
            "tokenizer": tokenizer,
            "max_length": self.hparams["max_length"],
        }

    def dataset(self, split: Split) -> TextDataset | None:
        """Return the texts of one split as tokens of the fitted tokenizer."""
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
                    f"max_length={longest} tokens and are truncated"
                )
            self._encoded[part] = encoded
        return self._encoded[part]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore classes and tokenizer; texts are tokenized again."""
        super().load_state_dict(state_dict)
        self._encoded.clear()

    def read_predict(self) -> None:
        """Read the texts to predict."""
        if self._predict_path is None:
            raise ValueError(f"{type(self).__name__} has no predict samples; pass predict_path=")
        self._tables["predict"] = self._read(self._predict_path, "predict", labelled=False)
        self._encoded.pop("predict", None)

    @property
    def predict_keys(self) -> list[str] | list[int]:
        """File of each predicted text, or its row number from 0."""
        self._ensure_read("predict")
        return self._tables["predict"].keys

    @property
    def truncated(self) -> dict[str, int]:
        """Number of texts of each split that were truncated at ``max_length``."""
        counts = {}
        for split in ("train", "val", "test", "predict"):
            dataset = self._datasets.get(split)
            if dataset is not None:
                part = split if split == "predict" else self._rows[split][0]
                counts[split] = int(self._tokens(part).cut[dataset.rows.numpy()].sum())
        return counts

    def lengths(self, split: Split) -> Indices:
        """Return the (N,) int64 numbers of tokens of a split's texts, in its order."""
        dataset = self._dataset(split)
        return np.empty(0, np.int64) if dataset is None else dataset.lengths()

    def split_fingerprint(self) -> str:
        """Return a digest of each split's rows and of all texts and labels."""
        parts = [
            value for split, (part, rows) in self._rows.items() for value in (split, part, rows)
        ]
        tables = sorted({part for part, _ in self._rows.values()})
        return fingerprint(*parts, *(self._tables[part].digest() for part in tables))

    def __str__(self) -> str:
        text = super().__str__()
        if self.fitted:
            text += f" of {self.num_classes} classes, {self.input_sizes['vocab_size']:,} tokens"
        cut = {split: count for split, count in self.truncated.items() if count}
        if cut:
            which = ", ".join(f"{split} {count:,}" for split, count in cut.items())
            text += f"; truncated to {self.fitted['max_length']} tokens: {which}"
        return text
