from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest
from processes import run_program

from datamodules.texts import tokenizer as module
from datamodules.texts.dataset import FlatRows
from datamodules.texts.tokenizer import encode, load_tokenizer, token_sizes, train_tokenizer

TEXTS = [
    "the red fox jumps over the lazy dog",
    "blue birds sing in the old tree",
    "the old fox and the blue bird",
    "很快好吃 味道很好",
    "naïve café, größer",
] * 20


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def trained(texts=TEXTS, rows=None, **options):
    flat = FlatRows.from_texts(texts)
    chosen = np.arange(len(texts)) if rows is None else np.array(rows)
    return train_tokenizer(flat, chosen, **{"vocab_size": 400, **options})


def ids_of(content, texts, **options):
    tokens = encode(content, FlatRows.from_texts(texts), **options).tokens
    return [tokens[i].tolist() for i in range(len(tokens))]


def decoded(content, ids):
    from tokenizers import Tokenizer

    return Tokenizer.from_str(content).decode(ids)


def word_level(**special):
    """A tokenizer.json like BERT's: words, ``[CLS] text [SEP]``."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "red": 4, "fox": 5, "bird": 6}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    if special.get("template", True):
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    return tokenizer


PROGRAM = """
import hashlib, sys
from pathlib import Path
import numpy as np
from datamodules.texts.tokenizer import train_tokenizer
from datamodules.texts.dataset import FlatRows
texts = Path(sys.argv[1]).read_text(encoding="utf-8").split("\\n")
content = train_tokenizer(FlatRows.from_texts(texts), np.arange(len(texts)), vocab_size=400)
print(hashlib.sha256(content.encode()).hexdigest())
"""


@pytest.mark.runs
def test_the_same_rows_give_the_same_tokenizer_in_every_process(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    output = run_program(
        tmp_path / "train.py",
        tmp_path / "texts.txt",
        PYTHONHASHSEED="1",
        DATAMODULES_CACHE=str(tmp_path / "other"),
    )
    assert output.split() == [hashlib.sha256(trained().encode()).hexdigest()]


def test_only_train_rows_are_read():
    other = [*TEXTS[:50], *(["zzzz qqqq xxxx"] * 50)]
    assert trained(TEXTS, range(50)) == trained(other, range(50))
    assert trained(TEXTS, range(50)) != trained(other)


def test_texts_in_any_script_are_encoded_and_decoded():
    content = trained()
    for text in ("很快", "žluťoučký kůň", "\U0001f436", "a\tb\nc", "مرحبا", "\x00", "<pad> <cls>"):
        (ids,) = ids_of(content, [text])
        assert decoded(content, ids) == f" {text}"


def test_two_unicode_forms_of_a_character_are_equal():
    content = trained()
    assert ids_of(content, ["caf\u00e9"]) == ids_of(content, ["cafe\u0301"])


def test_lowercase_is_stored_in_the_tokenizer():
    content = trained(lowercase=True)
    assert ids_of(content, ["The RED Fox"]) == ids_of(content, ["the red fox"])
    assert ids_of(trained(), ["RED"]) != ids_of(trained(), ["red"])


def test_an_empty_text_has_one_token_and_nan_is_a_word():
    content = trained()
    empty, blank, nan, word = ids_of(content, ["", "   ", "nan", "red"])
    assert empty == [1]
    assert blank[0] == nan[0] == word[0] == 1
    assert len(blank) > 1
    assert len({tuple(empty), tuple(blank), tuple(nan), tuple(word)}) == 4


def test_padding_is_id_0_and_no_text_encodes_to_it():
    content = trained()
    assert token_sizes(content)["pad_id"] == 0
    assert token_sizes(content)["vocab_size"] <= 400
    written = ids_of(content, ["<pad>", "<cls><sep> <pad>", "\x00", " "])
    assert all(0 not in row for row in written)
    assert all(row.count(1) == 1 for row in written)
    assert max(max(row) for row in written) < token_sizes(content)["vocab_size"]


def test_pairs_have_a_separator_between_them():
    content = trained()
    first, second = FlatRows.from_texts(["red fox", ""]), FlatRows.from_texts(["blue bird", ""])
    tokens = encode(content, first, pairs=second).tokens
    (red,), (blue,) = ids_of(content, ["red fox"]), ids_of(content, ["blue bird"])
    assert tokens[0].tolist() == [*red, 2, *blue[1:]]
    assert tokens[1].tolist() == [1, 2]


def test_longer_texts_are_truncated_and_counted():
    content = trained()
    texts = ["red", "the old fox " * 30, "blue"]
    full = ids_of(content, texts)
    encoded = encode(content, FlatRows.from_texts(texts), max_length=8)
    assert encoded.cut.tolist() == [False, True, False]
    assert encoded.tokens[1].tolist() == full[1][:8]
    assert encoded.tokens[0].tolist() == full[0]
    exact = encode(content, FlatRows.from_texts(texts), max_length=len(full[1]))
    assert not exact.cut.any()


def test_a_batch_of_texts_equals_single_texts():
    content = trained()
    texts = [f"{text} {i}" for i, text in enumerate(TEXTS * 25)]
    assert len(texts) > 2 * module.CHUNK
    together = ids_of(content, texts)
    for i in (0, 999, 1000, 1001, 2499):
        assert [together[i]] == ids_of(content, [texts[i]])


def test_a_text_of_a_megabyte_is_encoded():
    content = trained()
    encoded = encode(content, FlatRows.from_texts(["word " * 200_000, "short"]), max_length=512)
    assert encoded.tokens.lengths()[0] == 512
    assert encoded.cut.tolist() == [True, False]


def test_a_given_tokenizer_keeps_its_special_tokens_when_texts_are_cut(tmp_path):
    word_level().save(str(tmp_path / "tokenizer.json"))
    content = load_tokenizer(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path) == content
    assert token_sizes(content) == {"vocab_size": 7, "pad_id": 0}
    assert ids_of(content, ["red fox", "", "fox " * 9], max_length=5) == [
        [2, 4, 5, 3],
        [2, 3],
        [2, 5, 5, 5, 3],
    ]
    # as a Hugging Face tokenizer reads it
    assert ids_of(content, ["red [SEP] fox"]) == [[2, 4, 3, 5, 3]]


def test_padding_and_truncation_of_a_given_file_are_not_used(tmp_path):
    tokenizer = word_level()
    tokenizer.enable_padding(length=20, pad_id=0)
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "t.json"))
    content = load_tokenizer(tmp_path / "t.json")
    assert ids_of(content, ["red fox bird"]) == [[2, 4, 5, 6, 3]]


@pytest.mark.parametrize(("padding", "expected"), [(None, 0), (5, 5)])
def test_the_pad_id_is_declared_or_found_by_name(padding, expected):
    tokenizer = word_level()
    if padding is not None:
        tokenizer.enable_padding(pad_id=padding)
    assert token_sizes(tokenizer.to_str())["pad_id"] == expected


def test_without_a_post_processor_an_empty_text_is_one_special_token():
    content = word_level(template=False).to_str()
    assert ids_of(content, ["red", "", "fox"]) == [[4], [3], [5]]
    state = json.loads(content)
    state["added_tokens"], state["model"]["unk_token"] = [], "red"
    state["model"]["vocab"] = {"red": 0, "fox": 1}
    with pytest.raises(ValueError, match="text 1 has no token"):
        ids_of(json.dumps(state), ["red", ""])


def test_an_equal_call_reads_the_cache(monkeypatch, cache):
    content = trained()
    tokens = ids_of(content, TEXTS)
    assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".pt"]
    monkeypatch.setattr(module, "_train", None)
    monkeypatch.setattr(module, "_encode", None)
    assert trained() == content
    assert ids_of(content, TEXTS) == tokens
    for changed in ({"texts": TEXTS[1:]}, {"vocab_size": 401}, {"lowercase": True}):
        with pytest.raises(TypeError):
            trained(**changed)
    with pytest.raises(TypeError):
        ids_of(content, TEXTS, max_length=4)
    with pytest.raises(TypeError):
        ids_of(content, ["other"])


def test_damaged_entries_are_made_again(cache):
    content = trained()
    tokens = ids_of(content, TEXTS)
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert trained() == content
    assert ids_of(content, TEXTS) == tokens


def test_bad_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="vocab_size must be at least 259"):
        trained(vocab_size=258)
    with pytest.raises(ValueError, match="larger than the 2 special tokens"):
        ids_of(word_level().to_str(), ["red"], max_length=2)
    with pytest.raises(FileNotFoundError, match=r"does not exist; pass a tokenizer\.json"):
        load_tokenizer(tmp_path / "no.json")
    (tmp_path / "bad.json").write_text('{"vocab": 1}')
    with pytest.raises(ValueError, match=r"bad\.json' is not a tokenizer\.json"):
        load_tokenizer(tmp_path / "bad.json")


def test_the_environment_is_restored(monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    trained()
    assert "TOKENIZERS_PARALLELISM" not in os.environ
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    ids_of(trained(), TEXTS)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


FORKS = """
import os, numpy as np
from datamodules.texts.tokenizer import encode, train_tokenizer
from datamodules.texts.dataset import FlatRows
texts = FlatRows.from_texts([f"the red fox {i}" for i in range(3000)])
content = train_tokenizer(texts, np.arange(3000), vocab_size=300)
before = encode(content, texts).tokens.values.sum()
pid = os.fork()
if pid == 0:
    again = encode(content, texts, max_length=511).tokens.values.sum()
    os._exit(0 if again == before else 1)
assert os.waitpid(pid, 0)[1] == 0
print("done")
"""


@pytest.mark.runs
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_after_tokenizing_neither_warns_nor_hangs(tmp_path):
    (tmp_path / "forks.py").write_text(FORKS)
    output = run_program("-W", "error", tmp_path / "forks.py", timeout=100)
    assert output.strip() == "done"
