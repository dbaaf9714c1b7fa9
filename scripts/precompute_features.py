"""Run a frozen model once over the splits of a datamodule and write its outputs.

Training a head on them takes seconds. Train samples get the evaluation transform, without
augmentation. The pack records the data, the transform and the weights it was made from.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)
# Before torch is loaded, see scripts/fit.py.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import lightning as L
from jsonargparse import ArgumentParser
from rich.console import Console
from rich.progress import Progress
from torch import nn

from command_line import add_objects, instantiate, new_parser, parse
from datamodules import DataModule
from datamodules.feature_packs.format import read_features
from datamodules.feature_packs.writer import write_features
from failures import Ranks, exit_code
from models import Classifier, Regressor
from models.backbones import build_backbone, trained_backbone
from names import UsageError
from run_folder import WRITTEN_BY, read_checkpoint

EPILOG = """
examples:
  python scripts/precompute_features.py --data ImageFolderDataModule --data.root photos \\
      --net resnet18 --weights DEFAULT --out photos.features
  python scripts/precompute_features.py --ckpt_path runs/x/checkpoints/best.ckpt --out x.features
  python scripts/fit.py --data FeaturesDataModule --data.path photos.features \\
      --model Classifier --model.net tabular_mlp --model.net_options '{"hidden": []}'

Exit codes: 0, 1 for data, 2 for usage, 130 for Ctrl-C.
"""


def build_parser() -> ArgumentParser:
    """Return a parser with all options."""
    parser = new_parser(__doc__ or "", EPILOG)
    group = parser.add_argument_group("Features")
    group.add_argument("--out", type=str, help="folder of the features")
    group.add_argument("--net", type=str, default="resnet18", help="name of a model")
    group.add_argument("--weights", type=str | None, default=None, help="such as DEFAULT")
    group.add_argument(
        "--ckpt_path", type=str | None, default=None, help="use the model of this checkpoint"
    )
    group.add_argument("--batch_size", type=int, default=64, help="samples per step")
    group.add_argument("--device", type=str, default="cpu", help="such as cpu or cuda")
    group.add_argument("--seed", type=int, default=0, help="seed of a model without weights")
    group.add_argument("--traceback", action="store_true", help="show errors in full")
    add_objects(parser, ["data"])
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(precompute, sys.argv[1:] if arguments is None else arguments)


def precompute(arguments: list[str], ranks: Ranks) -> None:
    """Build the model, run it and print what was written."""
    parser = build_parser()
    config = parse(parser, arguments)
    if config.out is None:
        raise UsageError("pass --out, the folder of the features")
    if config.batch_size < 1:
        raise UsageError(f"--batch_size must be at least 1, got {config.batch_size}")
    L.seed_everything(config.seed, workers=True, verbose=False)
    data = instantiate(parser, config).data
    if not isinstance(data, DataModule):
        raise UsageError(f"{type(data).__name__} is not a datamodule of this project")
    data.prepare_data()
    data.setup()
    net = find_net(config, data)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("features", total=None)
        keys = write_features(
            data,
            net,
            config.out,
            batch_size=config.batch_size,
            device=config.device,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    _, parts = read_features(config.out)
    print(f"{'features':<14}{Path(config.out).absolute()}")
    for split, (features, _) in parts.items():
        print(f"{split:<14}{features.shape[0]:,} x {features.shape[1]:,}")
    for name, digest in keys._asdict().items():
        print(f"{name:<14}{digest}")


def find_net(config: Any, data: DataModule) -> nn.Module:
    """Return the model by name, or that of a checkpoint, without its last layer."""
    if config.ckpt_path is None:
        return build_backbone(config.net, input_sizes=data.input_sizes, weights=config.weights)
    written = read_checkpoint(config.ckpt_path).get(WRITTEN_BY) or {}
    name = str(written.get("model_class") or "").rpartition(".")[2]
    cls: type[Classifier] | type[Regressor] = Regressor if name == "Regressor" else Classifier
    model = cls.load_from_checkpoint(config.ckpt_path, map_location="cpu", weights_only=True)
    return trained_backbone(model)


if __name__ == "__main__":
    sys.exit(main())
