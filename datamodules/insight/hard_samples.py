"""Find the classes a model confuses most, and the samples with the highest loss."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from PIL import Image
from torch import Tensor
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from datamodules.core.accessors import bad_rows_of
from datamodules.core.datamodule import DataModule
from datamodules.figures.target_text import target_text
from datamodules.sampling.sharded_sampler import Keys
from datamodules.seeding.random_state import kept_random_state
from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name

from .datamodule_view import DataModuleView, PlansBatches
from .error_report import Confused, Hardest, HardSample
from .html_page import Card
from .split_view import SplitView, class_names, view_split

MOST_PAIRS, LONGEST_TEXT, SMALL, LARGE = 12, 1_500, 64, 256


def hardest(
    module: Any, dm: L.LightningDataModule, split: str = "val", *, k: int = 16, most: int = 10_000
) -> Hardest:
    """Evaluate a model on a split, and find its largest errors.

    On several ranks (an initialised ``torch.distributed``) each rank evaluates its own part, and
    all return the same. No Trainer takes part.

    Args:
        module: Whose call gives logits or probabilities (N, K), or values (N,) or (N, T) on the
            scale of the targets.
        dm: Any datamodule.
        split: ``"val"``, ``"test"`` or ``"train"``, which is drawn and augmented.
        k: Samples that are shown.
        most: Samples that are evaluated, the first ones.

    Raises:
        ValueError: If the split has no samples, its samples cannot be told apart, or an answer
            does not fit its target.
    """
    check_name(split, ("val", "test", "train"), "split")
    if k < 1 or most < 1:
        raise ValueError(f"k and most must be at least 1, got k={k}, most={most}")
    one, loader = _open_split(dm, split)
    marks = Marks(dm, one, loader, k=k)
    device = next((weight.device for weight in module.parameters()), torch.device("cpu"))
    trained = module.training
    module.eval()
    try:
        with torch.no_grad(), kept_random_state():
            for batch in loader:
                inputs, target = dm.transfer_batch_to_device(batch, device, 0)
                marks.take(module(inputs), target)
                if marks.seen * marks.ranks >= most:
                    break
    finally:
        module.train(trained)
    return marks.hardest()


def _open_split(dm: Any, split: Any) -> tuple[SplitView, Any]:
    dm.prepare_data()
    view = view_split(dm, split) or SplitView(split, None)
    if isinstance(dm, DataModule):
        view.loader = DataModuleView(dm).loader(split)
    return view, view.loader


def planned_rows(loader: Any, split: str) -> list[Indices]:
    """Positions in the dataset of each batch's samples, without making one.

    Raises:
        ValueError: If the loader is none of known samples, or draws their order as it goes.
    """
    batches = loader.batch_sampler if isinstance(loader, PlansBatches) else None
    if batches is None:
        raise ValueError(f"{split} is a stream, or there is none; name a split of known samples")
    sampler = loader.sampler
    if not isinstance(sampler, DistributedSampler | SequentialSampler):
        raise ValueError(
            f"{split} comes in the order of a {type(sampler).__name__}, so its samples cannot be "
            "named; pass shuffle=False"
        )
    return [np.asarray(k.indices if isinstance(k, Keys) else k, np.int64) for k in batches]


class Answered(NamedTuple):
    """What one rank keeps of the answers.

    Attributes:
        rows: (M,) positions of the samples, by batch.
        pairs: (M, 2) class and answer, by batch; with several labels 0, and 1 for a wrong answer;
            empty where answers are numbers.
        worst: Position, loss, answer and target of the samples with the highest losses.
    """

    rows: list[Indices]
    pairs: list[Indices]
    worst: list[tuple[int, float, Tensor, Tensor]]


class Marks:
    """Takes a model's answers batch by batch and keeps the worst.

    Args:
        dm: Whose data they are.
        one: The split that is evaluated.
        loader: Gives its batches, in the order that its sampler says now.
        k: Samples that are shown.

    Raises:
        ValueError: If the loader's samples cannot be told apart.
    """

    def __init__(self, dm: Any, one: SplitView, loader: Any, *, k: int = 16) -> None:
        self.dm, self.one, self.k = dm, one, k
        self._planned = planned_rows(loader, one.split)
        # a loader that knows nothing of ranks gives every rank everything
        shared = isinstance(loader.sampler, DistributedSampler)
        there = dist.is_available() and dist.is_initialized()
        self.ranks = dist.get_world_size() if there and shared else 1
        self._mine = Answered([], [], [])
        self._multilabel = False
        self.seen = 0

    def take(self, outputs: Any, target: Tensor) -> None:
        """Note the next batch.

        Args:
            outputs: (N, K) logits or probabilities, or (N,) or (N, T) values.
            target: (N,) or (N, K) or (N, T).

        Raises:
            ValueError: If answers and targets do not fit.
        """
        rows = self._planned[len(self._mine.rows)]
        ours = isinstance(self.dm, DataModule)
        bad = bad_rows_of(self.dm, self.one.split) if ours else []
        rows = rows[~np.isin(rows, bad)]  # files that were skipped
        outputs = getattr(outputs, "logits", outputs)
        if not isinstance(outputs, Tensor) or len(outputs) != len(rows) or len(target) != len(rows):
            found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ValueError(
                f"the model must answer with one row for each of {len(rows)} samples, got {found}; "
                "return logits (N, K) or values (N, T) from forward"
            )
        outputs, target = outputs.detach().cpu().float(), target.detach().cpu()
        task = self._task(target)
        losses = _losses(task, outputs, target)
        pairs = torch.empty((0, 2), dtype=torch.int64)
        if task == "multiclass":
            pairs = torch.stack([target.long(), outputs.argmax(1)], 1)
        elif task == "multilabel":
            self._multilabel = True
            wrong = (_flags(outputs) != (target > 0.5)).any(1).long()
            pairs = torch.stack([torch.zeros_like(wrong), wrong], 1)
        kept = np.lexsort((rows, -losses))[: self.k].tolist()
        worst = [(int(rows[i]), float(losses[i]), outputs[i], target[i]) for i in kept]
        self._mine.rows.append(rows)
        self._mine.pairs.append(pairs.numpy())
        self._mine.worst[:] = _worst([*self._mine.worst, *worst], self.k)
        self.seen += len(rows)

    def hardest(self) -> Hardest:
        """Bring the ranks together; every rank gets the same."""
        parts: list[Any] = [self._mine]
        if self.ranks > 1:
            parts = [None] * self.ranks
            dist.all_gather_object(parts, self._mine)
        none = np.empty(0, np.int64)
        rows = np.concatenate([none, *(found for part in parts for found in part.rows)])
        pairs = np.concatenate(
            [none.reshape(0, 2), *(found for part in parts for found in part.pairs)]
        )
        # a loader that pads its last batches, as Lightning's own does, gives some rows twice
        rows, first = np.unique(rows, return_index=True)
        pairs = pairs[first] if len(pairs) else pairs
        worst = _worst([sample for part in parts for sample in part.worst], self.k)
        samples = [self._hard(*sample) for sample in worst]
        return Hardest(
            self.one.split,
            looked_at=len(rows),
            whole=len(self.one),
            wrong=int((pairs[:, 0] != pairs[:, 1]).sum()) if len(pairs) else None,
            confused=[] if self._multilabel else self._confused(pairs),
            samples=samples,
            cards=[self._card(sample) for sample in samples],
        )

    def _confused(self, pairs: Indices) -> list[Confused]:
        names = class_names(self.dm, self.one) or []
        whole = Counter(pairs[:, 0].tolist())
        counts = Counter(map(tuple, pairs[pairs[:, 0] != pairs[:, 1]].tolist()))
        found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [
            Confused(target_text(true, names), target_text(answer, names), n, n / whole[true])
            for (true, answer), n in found[:MOST_PAIRS]
        ]

    def _task(self, target: Tensor) -> str:
        known = DataModuleView(self.dm).task
        if not target.is_floating_point() and target.ndim == 1:
            return "multiclass"
        flags = target.ndim == 2 and bool(((target == 0) | (target == 1)).all())
        multilabel = known == "multilabel" or (flags and known != "regression")
        return "multilabel" if multilabel else "regression"

    def _hard(self, row: int, loss: float, output: Tensor, target: Tensor) -> HardSample:
        task = self._task(target[None])
        names = class_names(self.dm, self.one)
        scale = DataModuleView(self.dm).target_scale
        if task == "multiclass":
            shares = output if _are_shares(output[None], rows=True) else output.softmax(0)
            best = int(shares.argmax())
            answer = f"{target_text(best, names or [])} ({float(shares[best]):.0%})"
            right = f"{target_text(target, names or [])} ({float(shares[int(target)]):.0%})"
            return HardSample(row, self.one.describe(row), loss, right, answer)
        if task == "multilabel":
            flags = _flags(output[None])[0].float()
            said = [target_text(value, names) for value in (target, flags)]
        else:
            said = [target_text(value, None, scale) for value in (target, output)]
        return HardSample(row, self.one.describe(row), loss, *said)

    def _card(self, sample: HardSample) -> Card:
        lines = [f"answer: {sample.answer}", f"loss {sample.loss:.3g}", sample.name]
        try:
            with kept_random_state():
                shown = self.one.sample(sample.row)
        except Exception as error:  # the file may have gone since
            return Card(sample.target, [*lines, f"cannot be shown: {error}"])
        text = shown.text
        if text is not None and len(text) > LONGEST_TEXT:
            text = f"{text[:LONGEST_TEXT]}… ({len(text):,} characters)"
        png, small = (None, False) if shown.image is None else _png(shown.image)
        alt = f"{sample.name}: {sample.target}, answer {sample.answer}"
        return Card(f"true: {sample.target}", lines, png, alt, text, shown.cells, small)


def _worst(
    samples: list[tuple[int, float, Tensor, Tensor]], k: int
) -> list[tuple[int, float, Tensor, Tensor]]:
    """The k highest losses, each sample once, in the same order whatever the ranks."""
    once = {sample[0]: sample for sample in samples}
    return sorted(once.values(), key=lambda sample: (-sample[1], sample[0]))[:k]


def _flags(outputs: Tensor) -> Tensor:
    """(N, K) bool, the labels that are given."""
    return outputs > (0.5 if _are_shares(outputs) else 0.0)


def _losses(task: str, outputs: Tensor, target: Tensor) -> npt.NDArray[np.float32]:
    functional = torch.nn.functional
    if task == "multiclass":
        if outputs.ndim != 2 or int(target.max()) >= outputs.shape[1] or int(target.min()) < 0:
            raise ValueError(
                f"answers (N, K) with K above the largest of the targets {int(target.min())} to "
                f"{int(target.max())} are needed, got {tuple(outputs.shape)}; check num_classes"
            )
        logs = outputs.clamp_min(1e-12).log() if _are_shares(outputs, rows=True) else outputs
        losses = functional.cross_entropy(logs, target, reduction="none")
    elif outputs.numel() != target.numel():
        raise ValueError(
            f"answers {tuple(outputs.shape)} do not fit targets {tuple(target.shape)}; return one "
            "value for each"
        )
    elif task == "multilabel":
        given = target.float()
        entropy = (
            functional.binary_cross_entropy(outputs, given, reduction="none")
            if _are_shares(outputs)
            else functional.binary_cross_entropy_with_logits(outputs, given, reduction="none")
        )
        losses = entropy.mean(1)
    else:
        losses = (
            (outputs.reshape(len(target), -1) - target.reshape(len(target), -1)).square().mean(1)
        )
    # an answer that is no number is the worst of all
    return np.asarray(torch.nan_to_num(losses, nan=torch.inf).numpy(), np.float32)


def _are_shares(outputs: Tensor, *, rows: bool = False) -> bool:
    inside = bool(((outputs >= 0) & (outputs <= 1)).all())
    return inside and (not rows or bool(((outputs.sum(1) - 1).abs() < 1e-3).all()))


def _png(tensor: Tensor) -> tuple[bytes, bool]:
    pixels = tensor.permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels if pixels.shape[2] != 1 else pixels[:, :, 0])
    small = max(image.size) <= SMALL
    image.thumbnail((LARGE, LARGE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue(), small
