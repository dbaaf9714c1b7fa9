"""Which figures a datamodule's data can be shown in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from datamodules.core.datamodule import SPLITS
from datamodules.figures.canvas import Drawing
from datamodules.figures.classes import class_bars, class_counts, numbers_of, target_histogram
from datamodules.figures.columns import (
    column_histograms,
    column_values,
    missing_bars,
    missing_shares,
)
from datamodules.figures.images import (
    augmentation_grid,
    batch_images,
    image_sizes,
    shows_images,
)
from datamodules.figures.lengths import text_lengths, token_lengths
from datamodules.settings.arguments import check_name

from .split_view import Looked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(dm: Any, split: str = "train", *, most: int = 16) -> Figure:
    """What a split's data look like, in one figure.

    Images of one batch under their labels, with the normalisation undone; for a table the values
    of each column; for texts their lengths in tokens, with the bounds of length buckets.

    Args:
        dm: A datamodule of ours.
        split: Which.
        most: Images shown.

    Returns:
        A matplotlib figure, shown by a notebook, written by ``savefig``. No window opens, and
        pyplot's state and backend are left alone.

    Raises:
        ValueError: If ``split`` is none, or its samples are neither images, rows nor texts.
    """
    check_name(split, SPLITS, "split")
    batch = dm.preview(split)
    one = Looked(split, dm._dataset(split), None, batch)
    if shows_images(one):
        return batch_images(dm, one, most=most)
    if lengths := token_lengths({split: one}):
        return text_lengths(dm, lengths).figure
    if split != "predict" and (values := column_values(dm, one)):
        return column_histograms(values, split).figure
    raise ValueError(
        f"plot shows images (N, C, H, W), the columns of tables and the lengths of texts; "
        f"{split} batches hold {type(one.inputs).__name__}; print(inspect(dm)) shows them in words"
    )


def drawings(dm: Any, seen: Mapping[str, Looked], failed: list[str]) -> list[Drawing]:
    """Every figure that the data of some splits can be shown in.

    Args:
        dm: Any datamodule.
        seen: Its splits.
        failed: Takes what could not be drawn, and why.
    """
    made = []
    for name, draw in _kinds(dm, seen):
        try:
            drawing = draw()
        except Exception as error:  # one sample that cannot be shown costs one figure
            failed.append(f"{name} could not be drawn: {type(error).__name__}: {error}")
            continue
        made += [] if drawing is None else [drawing]
    return made


def _kinds(
    dm: Any, seen: Mapping[str, Looked]
) -> Iterator[tuple[str, Callable[[], Drawing | None]]]:
    first = seen.get("train") or next(iter(seen.values()), None)
    if first is None:
        return
    if shows_images(first):
        for split in ("train", "val") if "val" in seen else ("train",):
            if split in seen:
                rows = 6 if split == "train" else 3
                columns = 4 if split == "train" else 2
                one = seen[split]
                yield (
                    f"the {split} transform",
                    lambda one=one, rows=rows, columns=columns: augmentation_grid(  # type: ignore[misc]
                        dm, one, samples=rows, draws=columns
                    ),
                )
    yield "classes by split", lambda: _targets_by_class(dm, seen)
    for place, (name, values) in enumerate(_numbers(dm, seen)):
        if place < 4:
            yield f"target {name}", lambda v=values, n=name: target_histogram(v, n)  # type: ignore[misc]
    yield "sizes of the images", lambda: image_sizes(dm, seen)
    if lengths := token_lengths(seen):
        yield "lengths of the texts", lambda: text_lengths(dm, lengths)
    yield "values by column", lambda: _columns(dm, first)
    yield "missing cells", lambda: _gaps(dm, seen)


def _targets_by_class(dm: Any, seen: Mapping[str, Looked]) -> Drawing | None:
    found = class_counts(dm, seen)
    return None if found is None else class_bars(*found)


def _numbers(dm: Any, seen: Mapping[str, Looked]) -> Iterator[tuple[str, dict[str, Any]]]:
    found = numbers_of(dm, seen)
    count = min((values.shape[1] for values in found.values()), default=0)
    given = getattr(dm, "target", None)
    names = given if isinstance(given, list) and len(given) == count else None
    for place in range(count):
        name = str(names[place]) if names else "value" if count == 1 else f"value {place + 1}"
        yield name, {split: values[:, place] for split, values in found.items()}


def _columns(dm: Any, one: Looked) -> Drawing | None:
    values = column_values(dm, one)
    return column_histograms(values, one.split) if values else None


def _gaps(dm: Any, seen: Mapping[str, Looked]) -> Drawing | None:
    shares = missing_shares(dm, seen)
    return missing_bars(shares) if shares else None
