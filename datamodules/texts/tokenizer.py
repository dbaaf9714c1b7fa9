"""Byte-level BPE: trained or loaded, and texts to tokens once, through a cache outside the data."""

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
# what stands for an empty text where a tokenizer adds nothing of its own; the first that exists
END_NAMES = ("</s>", "<|endoftext|>", "<eos>", "[SEP]", "<sep>", "<s>", "[CLS]", "<unk>", "[UNK]")
CHUNK = 1_000  # texts a thread takes at once
FORMAT = "1"  # part of each cache key; raised when the content of an entry changes its meaning


class Encoded(NamedTuple):
    """N texts as tokens.

    Attributes:
        tokens: N rows of ids, each at least one long, uint16 or uint32.
        cut: (N,) bool, True where a text was longer than ``max_length``.
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
    """Train byte-level BPE on chosen rows; the same rows give the same tokenizer.

    Every byte has a token, so any script can be written and nothing is unknown. Id 0 is padding, a
    text begins with ``<cls>`` and so has at least one token, a pair has ``<sep>`` between its
    parts. Equal characters in different Unicode spellings become one (NFC).

    Args:
        texts: All texts, as UTF-8 bytes.
        rows: The train rows, the only ones that are read.
        pairs: Second texts.
        vocab_size: At most that many tokens; pieces that come once become none.
        lowercase: Fold case first.

    Returns:
        The content of a ``tokenizer.json``.

    Raises:
        ValueError: If ``vocab_size`` has no room for the 256 bytes.
    """
    check_vocab_size(vocab_size)
    sources = [texts] if pairs is None else [texts, pairs]
    seen = (part for source in sources for part in _parts(source, rows))
    key = fingerprint(FORMAT, _version(), str((vocab_size, lowercase)), *seen)

    def make() -> str:
        return _train((text for s in sources for text in s.iter_texts(rows)), vocab_size, lowercase)

    def read(path: Path) -> str:
        content = path.read_text(encoding="utf-8")
        _load(content)  # a damaged entry is made again
        return content

    return cached(f"tokenizer-{key}.json", make, read, lambda c, path: path.write_bytes(c.encode()))


def check_vocab_size(vocab_size: int) -> None:
    """Refuse a vocabulary that has no room for every byte.

    Raises:
        ValueError: If it has not.
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
    """Content of a ``tokenizer.json``, checked.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is none that ``tokenizers`` reads.
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
            f"{str(path)!r} is no tokenizer.json that tokenizers {_version()} reads: {error}; "
            "write it with Tokenizer.save() or PreTrainedTokenizerFast.save_pretrained()"
        ) from error
    return content


def token_sizes(content: str) -> dict[str, int]:
    """``{"vocab_size": V, "pad_id": ...}``: every id is below V.

    The pad id is the one the tokenizer declares, else of a token called like one (``[PAD]``), else
    0; what is padding is told by the mask.
    """
    tokenizer = _load(content)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    pad_id = (json.loads(content).get("padding") or {}).get("pad_id")
    if pad_id is None:
        pad_id = next((vocabulary[name] for name in PAD_NAMES if name in vocabulary), 0)
    return {"vocab_size": max(vocabulary.values()) + 1, "pad_id": int(pad_id)}


def encode(
    content: str, texts: FlatRows, *, pairs: FlatRows | None = None, max_length: int = 512
) -> Encoded:
    """Texts to tokens, once: an equal call later reads the cache.

    Args:
        content: A ``tokenizer.json``; its special tokens are added, its own padding and
            truncation are not used.
        texts: N texts, as UTF-8 bytes.
        pairs: N second texts.
        max_length: Tokens kept of a text, special tokens counted; of a pair the longer part is
            cut first.

    Returns:
        :class:`Encoded`.

    Raises:
        ValueError: If ``max_length`` leaves no room beside the special tokens, or a text gives no
            token at all.
    """
    both = [texts] if pairs is None else [texts, pairs]
    key = fingerprint(
        FORMAT, _version(), content, str(max_length), *(t for s in both for t in _parts(s))
    )

    def make() -> Encoded:
        return _encode(content, texts, pairs, max_length)

    return cached(f"tokens-{key}.pt", make, lambda path: _read_tokens(path, len(texts)), _save)


def _encode(content: str, texts: FlatRows, pairs: FlatRows | None, max_length: int) -> Encoded:
    tokenizer = _load(content)
    added = tokenizer.num_special_tokens_to_add(pairs is not None)
    if max_length <= added:
        raise ValueError(
            f"max_length must be over the {added} special tokens of each text, got {max_length}"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    dtype = np.uint16 if max(vocabulary.values()) < 2**16 else np.uint32
    filler = next((vocabulary[name] for name in END_NAMES if name in vocabulary), None)

    def chunk(start: int) -> tuple[npt.NDArray[Any], list[int], list[bool]]:
        stop = min(start + CHUNK, len(texts))
        multilabel: Any = texts.texts(start, stop)
        if pairs is not None:
            multilabel = list(zip(multilabel, pairs.texts(start, stop), strict=True))
        encodings = tokenizer.encode_batch_fast(multilabel)
        ids = [encoding.ids for encoding in encodings]
        for i, row in enumerate(ids):
            if not row:
                ids[i] = [_filler(filler, start + i)]
        flat = np.fromiter(chain.from_iterable(ids), dtype)
        return flat, [*map(len, ids)], [bool(encoding.overflowing) for encoding in encodings]

    starts = range(0, len(texts), CHUNK)
    # Threads of ours, not of tokenizers: it releases the lock, and once its own threads have run it
    # warns at each later fork.
    with _one_thread(), ThreadPoolExecutor(usable_cores()) as pool:
        parts = list(pool.map(chunk, starts))
    flat = np.concatenate([np.empty(0, dtype), *(part[0] for part in parts)])
    lengths = [length for part in parts for length in part[1]]
    cut = np.array([was for part in parts for was in part[2]], bool)
    return Encoded(FlatRows.from_lengths(flat, lengths), cut)


def _filler(token: int | None, row: int) -> int:
    if token is None:
        raise ValueError(
            f"text {row} gives no token: the tokenizer adds no special token and has none of "
            f"{', '.join(END_NAMES)}; give it a post-processor, or leave empty texts out"
        )
    return token


def _load(content: str) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content)
    # in ours, a text that spells "<pad>" is a text about it and not padding
    tokenizer.encode_special_tokens = tokenizer.token_to_id(PAD) == 0 and (
        tokenizer.token_to_id(CLS) == 1
    )
    return tokenizer


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep tokenizers from starting threads of its own."""
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
    """Content of chosen rows, for a key."""
    if rows is None:
        yield texts.values.tobytes()
        yield texts.offsets
    else:
        yield b"".join(texts[int(row)].tobytes() for row in rows)
        yield texts.lengths()[rows]


def _save(encoded: Encoded, path: Path) -> None:
    torch.save({**encoded.tokens.state(), "cut": torch.from_numpy(encoded.cut)}, path)


def _read_tokens(path: Path, rows: int) -> Encoded:
    state = torch.load(path, weights_only=True)
    encoded = Encoded(FlatRows.from_state(state), state["cut"].numpy())
    if len(encoded.tokens) != rows:
        raise ValueError(f"{path} holds {len(encoded.tokens)} rows, {rows} are needed")
    return encoded
