from __future__ import annotations

import json
import shutil
from pathlib import Path

import lightning as L
import numpy as np
import polars as pl
import pytest
import torch
from contract import same
from small_texts import make, make_rows, write
from torch import nn
from warm_start import run_warm

from datamodules.text import TextDataModule
from datamodules.texts import tokenizer as tokenizer_file
from models import Classifier
from models.text_nets import TextBag, TextTransformer


def quiet_trainer(folder, **options):
    return L.Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "max_epochs": 1,
            "logger": False,
            "default_root_dir": folder,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            **options,
        }
    )


def decoded(dm, ids):
    from tokenizers import Tokenizer

    return Tokenizer.from_str(dm.fitted["tokenizer"]).decode(ids.tolist()).strip()


@pytest.mark.parametrize("size", [1, 2, 6])
def test_h28_empty_texts_keep_their_rows_and_one_token(cases_dir, size):
    dm = make(
        cases_dir / "text_edge_train.csv",
        batch_size=size,
        val_split=0,
        test_split=0,
        sampler="sequential",
    )
    net = TextTransformer(dm.input_sizes["vocab_size"], 2, dim=16).eval()
    lengths, targets, texts = [], [], []
    for ids, mask in (batch.inputs for batch in dm.batches("train")):
        assert ids.dtype == mask.dtype == torch.int64
        assert net(ids, mask).isfinite().all()
        lengths += mask.sum(1).tolist()
        texts += [decoded(dm, row[row > 0]) for row in ids]
    for batch in dm.batches("train"):
        targets += batch.target.tolist()
    assert texts == ["red fox", "", "", "blue bird sings", "", "nan"]
    assert targets == [0, 1, 0, 1, 0, 1]
    assert lengths == dm.lengths("train").tolist()
    assert min(lengths) == 1
    assert lengths[1] == lengths[4] == 1 < lengths[5]
    # a batch of empty texts alone
    empty = dm.train_dataset.get_batch(np.array([1, 4]))
    assert empty.inputs.input_ids.shape == (2, 1)
    assert net(*empty.inputs).isfinite().all()
    assert dm.fitted["class_counts"] == [3, 3]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("net", [TextBag, TextTransformer])
def test_h29_the_answer_does_not_depend_on_the_neighbours(tmp_path, side, net):
    words = ["", "fox " * 2, "the old fox " * 3, "tree and moss " * 30]
    rows = [(text, f"{i % 2}") for i, text in enumerate(words)] * 5
    path = write(tmp_path / "a.csv", rows)
    dm = make(path, padding_side=side, val_split=0, test_split=0)
    dataset = dm.train_dataset
    lengths = dataset.lengths()[:4].tolist()
    assert lengths[0] == 1
    assert lengths == sorted(lengths)
    torch.manual_seed(0)
    model = net(dm.input_sizes["vocab_size"], 2, dm.input_sizes["pad_id"], dim=16).eval()
    alone = torch.cat([model(*dataset.get_batch(np.array([i])).inputs) for i in range(4)])
    together = dataset.get_batch(np.arange(4)).inputs
    assert together.input_ids.shape == (4, lengths[3])
    assert together.attention_mask.sum(1).tolist() == lengths
    torch.testing.assert_close(model(*together), alone, atol=1e-5, rtol=0)
    backwards = dataset.get_batch(np.arange(4)[::-1].copy()).inputs
    torch.testing.assert_close(model(*backwards).flip(0), alone, atol=1e-5, rtol=0)
    as_bool = model(together.input_ids, together.attention_mask.bool())
    torch.testing.assert_close(as_bool, alone, atol=1e-5, rtol=0)


LOADS = """
import json, sys
import lightning as L, torch
from datamodules.text import TextDataModule
from models import Classifier
checkpoint, texts = sys.argv[1:]
dm = TextDataModule.load_from_checkpoint(checkpoint, predict_path=texts)
model = Classifier.load_from_checkpoint(checkpoint)
trainer = L.Trainer(accelerator="cpu", devices=1, logger=False, enable_progress_bar=False)
answer = torch.cat(trainer.predict(model, dm))
print("ANSWER", json.dumps({"classes": dm.classes, "batch_size": dm.hparams.batch_size,
    "tokenizer": dm.fitted["tokenizer"], "keys": dm.predict_keys, "answer": answer.tolist()}))
"""


def fitted(folder, file, **options):
    dm = make(file, batch_size=17, predict_path=file, **options)
    model = Classifier(net_options={"dim": 8})
    trainer = quiet_trainer(folder)
    trainer.fit(model, dm)
    trainer.save_checkpoint(folder / "a.ckpt")
    return dm, model, trainer


def test_h30_a_checkpoint_alone_is_enough_to_predict(tmp_path, cache):
    file = write(tmp_path / "texts.csv")
    new = tmp_path / "new.csv"
    pl.DataFrame({"text": ["old fox", "", "moss", "nan nan"]}).write_csv(new)
    dm, model, trainer = fitted(tmp_path, file)
    direct = make(file, predict_path=new)
    direct.load_state_dict(dm.state_dict())
    expected = torch.cat(trainer.predict(model, direct))
    file.unlink()
    shutil.rmtree(cache)
    (tmp_path / "loads.py").write_text(LOADS)
    output = run_warm(tmp_path / "loads.py", tmp_path / "a.ckpt", new)
    loaded = json.loads(output.partition("ANSWER ")[2].splitlines()[0])
    assert loaded["classes"] == dm.classes
    assert loaded["batch_size"] == 17
    assert loaded["tokenizer"] == dm.fitted["tokenizer"]
    assert loaded["keys"] == [0, 1, 2, 3]
    torch.testing.assert_close(torch.tensor(loaded["answer"]), expected, atol=1e-6, rtol=0)


def test_h30_a_fit_resumes_and_equal_names_never_stop_it(tmp_path, file):
    dm, _, _ = fitted(tmp_path, file)
    state = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert state["datamodule_hyper_parameters"]["path"] == str(file)
    again = make(Path(file), batch_size=17, predict_path=file)
    trainer = quiet_trainer(tmp_path, max_epochs=2)
    trainer.fit(Classifier(net_options={"dim": 8}), again, ckpt_path=tmp_path / "a.ckpt")
    assert trainer.current_epoch == 2
    assert again.fitted == dm.fitted
    changed = write(tmp_path / "other.csv", make_rows(seed=5))
    with pytest.raises(RuntimeError, match="the data or the split changed"):
        quiet_trainer(tmp_path, max_epochs=3).fit(
            Classifier(net_options={"dim": 8}), make(changed), ckpt_path=tmp_path / "a.ckpt"
        )


def test_new_texts_are_encoded_under_the_checkpoint_and_the_cut_too(tmp_path, file):
    dm = make(file, max_length=5, classes=["plant", "animal"])
    dm.setup()
    other = make(write(tmp_path / "b.csv", make_rows(30, seed=9)))
    other.setup()
    own = [batch.inputs.input_ids.shape[1] for batch in other.val_dataloader()]
    other.load_state_dict(dm.state_dict())
    (batch,) = other.val_dataloader()
    assert batch.inputs.input_ids.shape[1] == 5 < max(own)
    assert other.classes == ["plant", "animal"]
    texts = [decoded(other, ids[ids > 0]) for ids in batch.inputs.input_ids]
    by_text = dict(make_rows(30, seed=9))
    for text, target in zip(texts, batch.target, strict=True):
        assert any(t.startswith(text) and by_text[t] == other.classes[target] for t in by_text)


def test_a_test_file_is_enough_once_there_is_a_checkpoint(tmp_path):
    file = write(tmp_path / "texts.csv")
    test = write(tmp_path / "test.csv", make_rows(10, seed=3))
    _, model, trainer = fitted(tmp_path, file)
    file.unlink()
    dm = TextDataModule.load_from_checkpoint(tmp_path / "a.ckpt", test_path=test)
    trainer.test(model, dm, verbose=False)
    assert len(dm.test_dataset) == 10
    assert dm.train_dataset is None


def test_another_kind_of_checkpoint_is_named(file):
    with pytest.raises(ValueError, match="the state of 'OtherDataModule'"):
        make(file).load_state_dict({"source": "OtherDataModule", "fitted": {}})


class FaceLike(nn.Module):
    """Takes the arguments of a Hugging Face sequence classifier."""

    def __init__(self, vocab_size, num_labels):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab_size, 8), nn.Linear(8, num_labels)

    def forward(self, input_ids, attention_mask, labels=None):
        hidden = self.embed(input_ids) * attention_mask[..., None]
        logits = self.head(hidden.sum(1) / attention_mask.sum(1, keepdim=True))
        return nn.functional.cross_entropy(logits, labels)


def test_a_hugging_face_model_takes_the_batch_as_it_is(file):
    dm = make(file)
    model = FaceLike(dm.input_sizes["vocab_size"], dm.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    losses = []
    for _ in range(10):
        for inputs, target in dm.batches("train"):
            loss = model(**inputs._asdict(), labels=target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.2 < losses[0]


def test_workers_get_tokens_alone_and_give_the_same_batches(file, monkeypatch):
    plain = list(make(file).val_dataloader())
    dm = make(file, num_workers=2, loader_options={"persistent_workers": False})
    loader = dm.val_dataloader()
    # nothing of tokenizers may run there
    monkeypatch.setattr(tokenizer_file, "_load", None)
    assert same(list(loader), plain)


def test_texts_are_tokenised_once(file, monkeypatch, cache):
    work, calls = tokenizer_file._encode, []
    monkeypatch.setattr(tokenizer_file, "_encode", lambda *a: calls.append(1) or work(*a))
    dm = make(file)
    for _ in range(2):
        for split in ("train", "val", "test"):
            list(dm.batches(split))
    list(make(file, batch_size=3).train_dataloader())
    assert len(calls) == 1
    assert {path.parent for path in file.parent.rglob("*.pt")} == {cache}
    assert sorted(p.name for p in file.parent.iterdir()) == ["cache", "texts.csv"]


@pytest.mark.runs
def test_one_and_two_processes_see_the_same(tmp_path, file):
    program = Path(__file__).parents[1] / "helpers" / "text_ranks.py"
    seen = {}
    for world in (1, 2):
        output = run_warm(
            *(program, world, file, tmp_path),
            ranks=world,
            DATAMODULES_CACHE=str(tmp_path / f"cache{world}"),
        )
        lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
        seen[world] = dict(json.loads(line.removeprefix("SEEN ")) for line in lines)
        assert "parallelism" not in output
    one = seen[1][0]
    first, second = seen[2][0], seen[2][1]
    # 48 train rows in batches of 8 are 3 steps on each of 2 ranks
    assert sorted(first["seen"] + second["seen"]) == sorted(one["seen"])
    assert len(first["seen"]) == len(second["seen"]) == 24
    assert first["matrix"] == second["matrix"] == one["matrix"]
    assert sum(map(sum, one["matrix"])) == 6
    assert sorted(first["rows"] + second["rows"]) == sorted(one["rows"])
    assert [row for row, _ in sorted(one["rows"])] == list(range(60))
    assert one["made"] == first["made"] == ["_train", "_encode"]
    assert second["made"] == []
