"""Train or load a byte-level BPE tokenizer, and encode texts once through a cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from datamodules.readers.cache import cached
from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.cpu_count import usable_cores
from datamodules.splits.split import fingerprint

from .dataset import FlatRows

PAD, CLS, SEP = SPECIAL = ("<pad>", "<cls>", "<sep>")
SMALLEST_VOCAB = 256 + len(SPECIAL)
PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>", "[pad]")
# the first that exists encodes an empty text if the tokenizer adds no special token
END_NAMES = ("</s>", "<|endoftext|>", "<eos>", "[SEP]", "<sep>", "<s>", "[CLS]", "<unk>", "[UNK]")
CHUNK = 1_000  # texts per call of a thread
FORMAT = "1"  # part of each cache key; raised when the format of an entry changes


class EncodedTexts(NamedTuple):
    """N texts as tokens.

    Attributes:
        tokens: N rows of at least one id, uint16 or uint32.
        cut: (N,) bool, texts that were truncated to ``max_length``.
    """

    tokens: FlatRows
    cut: npt.NDArray[np.bool_]


def train_tokenizer(
    texts: FlatRows,
    rows: Indices,
    *,
    pairs: FlatRows | None = None,
    vocab_size: int = 8_000,
    lowercase: bool = False,
) -> str:
    """Train byte-level BPE on the train rows; the same rows give the same tokenizer.

    Every byte has a token, so no character is unknown. Id 0 is padding, a text begins with
    ``<cls>``, and ``<sep>`` is between the texts of a pair. Texts are normalized to NFC.

    Args:
        texts: All texts, as UTF-8 bytes.
        rows: Train rows; no other row is read.
        pairs: Second texts.
        vocab_size: Maximum number of tokens; a token occurs at least twice in the texts.
        lowercase: Whether texts are converted to lower case.

    Returns:
        The content of a ``tokenizer.json``.

    Raises:
        ValueError: If ``vocab_size`` is too small for the 256 bytes and the special tokens.
    """
    check_vocab_size(vocab_size)
    sources = [texts] if pairs is None else [texts, pairs]
    seen = (part for source in sources for part in _parts(source, rows))
    key = fingerprint(FORMAT, _version(), str((vocab_size, lowercase)), *seen)

    def make() -> str:
        return _train((text for s in sources for text in s.iter_texts(rows)), vocab_size, lowercase)

    def read(path: Path) -> str:
        content = path.read_text(encoding="utf-8")
        _load(content)  # raises an error for a damaged entry
        return content

    return cached(f"tokenizer-{key}.json", make, read, lambda c, path: path.write_bytes(c.encode()))


def check_vocab_size(vocab_size: int) -> None:
    """Raise an error if the vocabulary is too small.

    Raises:
        ValueError: If ``vocab_size`` is less than 256 bytes and the special tokens.
    """
    if vocab_size < SMALLEST_VOCAB:
        raise ValueError(
            f"vocab_size must be at least {SMALLEST_VOCAB} (256 bytes and {len(SPECIAL)} special "
            f"tokens), got {vocab_size}"
        )


def _train(texts: Iterator[str], vocab_size: int, lowercase: bool) -> str:
    from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer: Any = Tokenizer(models.BPE())
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    with _one_thread():
        tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A",
        pair=f"{CLS} $A {SEP} $B",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (CLS, SEP)],
    )
    content: str = tokenizer.to_str()
    return content


def load_tokenizer(path: str | Path) -> str:
    """Read and check a ``tokenizer.json``, or the one in a folder.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If ``tokenizers`` cannot read it.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"tokenizer={str(path)!r} does not exist; pass a tokenizer.json")
    content = path.read_text(encoding="utf-8")
    try:
        _load(content)
    except Exception as error:  # tokenizers raises plain Exception
        raise ValueError(
            f"{str(path)!r} is not a tokenizer.json that tokenizers {_version()} reads: {error}; "
            "write it with Tokenizer.save() or PreTrainedTokenizerFast.save_pretrained()"
        ) from error
    return content


def token_sizes(content: str) -> dict[str, int]:
    """Return ``{"vocab_size": V, "pad_id": ...}``; every id is below V.

    The pad id is declared by the tokenizer, or that of a token such as ``[PAD]``, or 0.
    """
    tokenizer = _load(content)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    pad_id = (json.loads(content).get("padding") or {}).get("pad_id")
    if pad_id is None:
        pad_id = next((vocabulary[name] for name in PAD_NAMES if name in vocabulary), 0)
    return {"vocab_size": max(vocabulary.values()) + 1, "pad_id": int(pad_id)}


def encode(
    content: str, texts: FlatRows, *, pairs: FlatRows | None = None, max_length: int = 512
) -> EncodedTexts:
    """Encode texts as tokens; a later call with the same arguments reads the cache.

    Args:
        content: A ``tokenizer.json``; its special tokens are added, its padding and truncation are
            not used.
        texts: N texts, as UTF-8 bytes.
        pairs: N second texts.
        max_length: Maximum number of tokens including special tokens; of a pair, the longer text
            is truncated first.

    Raises:
        ValueError: If ``max_length`` is not larger than the number of special tokens, or a text
            has no token.
    """
    both = [texts] if pairs is None else [texts, pairs]
    key = fingerprint(
        FORMAT, _version(), content, str(max_length), *(t for s in both for t in _parts(s))
    )

    def make() -> EncodedTexts:
        return _encode(content, texts, pairs, max_length)

    return cached(f"tokens-{key}.pt", make, lambda path: _read_tokens(path, len(texts)), _save)


def _encode(content: str, texts: FlatRows, pairs: FlatRows | None, max_length: int) -> EncodedTexts:
    tokenizer = _load(content)
    added = tokenizer.num_special_tokens_to_add(pairs is not None)
    if max_length <= added:
        raise ValueError(
            f"max_length must be larger than the {added} special tokens of each text, got "
            f"{max_length}"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    dtype = np.uint16 if max(vocabulary.values()) < 2**16 else np.uint32
    end_id = next((vocabulary[name] for name in END_NAMES if name in vocabulary), None)

    def chunk(start: int) -> tuple[npt.NDArray[Any], list[int], list[bool]]:
        stop = min(start + CHUNK, len(texts))
        batch: Any = texts.texts(start, stop)
        if pairs is not None:
            batch = list(zip(batch, pairs.texts(start, stop), strict=True))
        encodings = tokenizer.encode_batch_fast(batch)
        ids = [encoding.ids for encoding in encodings]
        for i, row in enumerate(ids):
            if not row:
                ids[i] = [_check_end(end_id, start + i)]
        flat = np.fromiter(chain.from_iterable(ids), dtype)
        return flat, [*map(len, ids)], [bool(encoding.overflowing) for encoding in encodings]

    starts = range(0, len(texts), CHUNK)
    # Our threads: tokenizers releases the GIL, and warns at each later fork if it used its own.
    with _one_thread(), ThreadPoolExecutor(usable_cores()) as pool:
        parts = list(pool.map(chunk, starts))
    flat = np.concatenate([np.empty(0, dtype), *(part[0] for part in parts)])
    lengths = [length for part in parts for length in part[1]]
    cut = np.array([was for part in parts for was in part[2]], bool)
    return EncodedTexts(FlatRows.from_lengths(flat, lengths), cut)


def _check_end(token: int | None, row: int) -> int:
    if token is None:
        raise ValueError(
            f"text {row} has no token: the tokenizer adds no special token and has none of "
            f"{', '.join(END_NAMES)}; give it a post-processor, or remove empty texts"
        )
    return token


def _load(content: str) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content)
    # in a tokenizer trained here, "<pad>" in a text is text, not padding
    tokenizer.encode_special_tokens = tokenizer.token_to_id(PAD) == 0 and (
        tokenizer.token_to_id(CLS) == 1
    )
    return tokenizer


@contextmanager
def _one_thread() -> Iterator[None]:
    """Prevent tokenizers from starting its own threads."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _version() -> str:
    import tokenizers

    return str(tokenizers.__version__)


def _parts(texts: FlatRows, rows: Indices | None = None) -> Iterator[bytes | Indices]:
    """Yield the content of the given rows, for a cache key."""
    if rows is None:
        yield texts.values.tobytes()
        yield texts.offsets
    else:
        yield texts.content(rows)
        yield texts.lengths()[rows]


def _save(encoded: EncodedTexts, path: Path) -> None:
    torch.save({**encoded.tokens.state(), "cut": torch.from_numpy(encoded.cut)}, path)


def _read_tokens(path: Path, rows: int) -> EncodedTexts:
    state = torch.load(path, weights_only=True)
    encoded = EncodedTexts(FlatRows.from_state(state), state["cut"].numpy())
    if len(encoded.tokens) != rows:
        raise ValueError(f"{path} has {len(encoded.tokens)} rows, expected {rows}")
    return encoded
