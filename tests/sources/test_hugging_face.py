"""Batches feed a Hugging Face model as they are, and its datasets feed a datamodule."""

from __future__ import annotations

import lightning as L
import pytest
import torch
from trainers import quiet_trainer

from datamodules import DatasetDataModule, TabularDataModule, TextDataModule

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.csv"
    rows = [f"{'good fine' if i % 2 else 'bad awful'} thing {i},{i % 2}\n" for i in range(40)]
    path.write_text("text,label\n" + "".join(rows))
    return path


def quiet(tmp_path, **flags):
    return quiet_trainer(default_root_dir=tmp_path, **flags)


class Wrapped(L.LightningModule):
    """No adapter: the batch's fields are the model's arguments."""

    def __init__(self, vocabulary):
        super().__init__()
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
        )
        self.model = transformers.BertForSequenceClassification(config)
        self.losses = []

    def training_step(self, batch, index):
        inputs, target = batch
        loss = self.model(**inputs._asdict(), labels=target).loss
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.model(**batch.inputs._asdict(), labels=batch.target).loss)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 5e-3)


def test_a_bert_of_random_weights_learns_from_text_batches(tmp_path, texts):
    dm = TextDataModule(texts, vocab_size=300, batch_size=8)
    dm.setup()
    model = Wrapped(dm.input_sizes["vocab_size"])
    quiet(tmp_path, max_epochs=6).fit(model, dm)
    assert sum(model.losses[-4:]) < sum(model.losses[:4]) / 2


def test_a_hugging_face_dataset_with_its_columns_and_class_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "ids": datasets.Sequence(datasets.Value("int64")),
            "label": datasets.ClassLabel(names=["n", "y"]),
        }
    )
    data = datasets.Dataset.from_dict(
        {"ids": [list(range(i % 4 + 1)) for i in range(24)], "label": [i % 2 for i in range(24)]},
        features=features,
    ).with_format("torch")
    dm = DatasetDataModule(data, inputs="ids", collate="pad", batch_size=4, num_workers=0)
    assert dm.classes == ["n", "y"]
    assert sum(dm.class_counts) == len(dm.train_dataset)
    batch = dm.preview()
    assert batch.inputs.values.shape == batch.inputs.mask.shape
    assert batch.target.dtype == torch.int64


class Plain(L.LightningModule):
    """A plain ``nn.Linear``, or embeddings beside numbers, as a user writes them."""

    def __init__(self, sizes):
        super().__init__()
        self.embed = torch.nn.ModuleList(torch.nn.Embedding(n, 4) for n in sizes["cardinalities"])
        width = sizes["num_numeric"] + 4 * len(self.embed)
        self.head = torch.nn.Linear(width, 2)

    def forward(self, inputs):
        if isinstance(inputs, torch.Tensor):
            return self.head(inputs)
        columns = [e(inputs.categorical[:, i]) for i, e in enumerate(self.embed)]
        return self.head(torch.cat([inputs.numeric, *columns], 1))

    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.cross_entropy(self(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self(x), y))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize("encode", ["codes", "onehot"])
def test_plain_modules_take_table_batches(tmp_path, encode):
    path = tmp_path / "rows.csv"
    rows = [f"{i}.5,{'red' if i % 3 else 'blue'},{'yes' if i % 2 else 'no'}\n" for i in range(60)]
    path.write_text("x,colour,y\n" + "".join(rows))
    dm = TabularDataModule(path, "y", encode=encode, batch_size=8)
    dm.setup()
    trainer = quiet(tmp_path, max_epochs=1)
    trainer.fit(Plain(dm.input_sizes), dm)
    assert torch.isfinite(trainer.callback_metrics["val_loss"])
