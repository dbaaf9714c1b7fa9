"""What a notebook does: look at a batch, then fit on forked processes."""

from __future__ import annotations

import lightning as L
from two_ranks import Recorder

from datamodules import samples


def main() -> None:
    import sys

    dm = getattr(samples, sys.argv[1])(batch_size=64)
    print(tuple(dm.preview().target.shape))
    model = Recorder() if len(sys.argv) < 3 else make()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp_fork",
        max_epochs=1,
        limit_train_batches=3,
        limit_val_batches=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, dm)
    print("FITTED")


def make():
    from models import Classifier

    return Classifier()


if __name__ == "__main__":
    main()
