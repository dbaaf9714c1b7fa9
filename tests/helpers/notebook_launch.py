"""What a notebook does: look at a batch, then fit on forked processes."""

from __future__ import annotations

from trainers import quiet_trainer
from two_ranks import Recorder

from datamodules import samples


def main() -> None:
    import sys

    dm = getattr(samples, sys.argv[1])(batch_size=64)
    print(tuple(dm.preview().target.shape))
    model = Recorder() if len(sys.argv) < 3 else make()
    trainer = quiet_trainer(
        2, strategy="ddp_fork", max_epochs=1, limit_train_batches=3, limit_val_batches=2
    )
    trainer.fit(model, dm)
    print("FITTED")


def make():
    from models import Classifier

    return Classifier()


if __name__ == "__main__":
    main()
