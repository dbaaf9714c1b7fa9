"""Fit, test and predict texts on W gloo processes; each rank prints what it saw as JSON.

Run as a program: ``python text_ranks.py WORLD FILE FOLDER``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from torch import nn
from torchmetrics.classification import MulticlassConfusionMatrix
from trainers import quiet_trainer

from datamodules.text import TextDataModule
from datamodules.texts import tokenizer


class Bag(L.LightningModule):
    """The masked mean of embeddings."""

    def __init__(self):
        super().__init__()
        self.embed = None
        self.seen, self.rows = [], []

    def configure_model(self):
        if self.embed is not None:
            return
        dm = self.trainer.datamodule
        torch.manual_seed(0)
        self.embed = nn.Embedding(dm.input_sizes["vocab_size"], 8)
        self.head = nn.Linear(8, dm.num_classes)
        self.counts = MulticlassConfusionMatrix(dm.num_classes)

    def forward(self, inputs):
        mask = inputs.attention_mask[..., None].float()
        return self.head((self.embed(inputs.input_ids) * mask).sum(1) / mask.sum(1))

    def training_step(self, batch, index):
        self.seen += batch.inputs.input_ids.sum(1).tolist()
        return nn.functional.cross_entropy(self(batch.inputs), batch.target)

    def test_step(self, batch, index):
        self.counts.update(self(batch.inputs).argmax(1), batch.target)

    def on_test_epoch_end(self):
        self.matrix = self.counts.compute().tolist()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.0)  # the same weights on any number of ranks


class Writer(BasePredictionWriter):
    def __init__(self):
        super().__init__("epoch")

    def write_on_epoch_end(self, trainer, module, predictions, batch_indices):
        for rows, logits in zip(batch_indices[0], predictions, strict=True):
            module.rows += zip(rows, logits.argmax(1).tolist(), strict=True)


def main() -> None:
    world, file, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    made = []
    for name in ("_train", "_encode"):
        work = getattr(tokenizer, name)

        def counted(*arguments, _work=work, _name=name):
            made.append(_name)
            return _work(*arguments)

        setattr(tokenizer, name, counted)
    dm = TextDataModule(Path(file), predict_path=file, batch_size=8, vocab_size=300, seed=1)
    model = Bag()
    trainer = quiet_trainer(world, max_epochs=1, default_root_dir=folder, callbacks=[Writer()])
    trainer.fit(model, dm)
    trainer.test(model, dm, verbose=False)
    trainer.predict(model, dm, return_predictions=False)
    said = {"made": made, "seen": model.seen, "matrix": model.matrix, "rows": model.rows}
    # one write each, so that the ranks' lines do not mix
    sys.stdout.write(f"\nSEEN {json.dumps([trainer.global_rank, said])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
