"""Write packs of images: in parallel, resumable, verified, and renamed when complete."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.readers.atomic_write import named_writes
from datamodules.readers.file_lock import sole_writer
from datamodules.readers.folders import check_folder
from datamodules.settings.arguments import check_name
from datamodules.settings.cpu_count import usable_cores

from .encoders import Form, Options, make_form
from .image_pack import (
    FILE,
    FORMAT,
    KINDS,
    MANIFEST,
    NAMES,
    PARTIAL,
    RECORD,
    RECORDS,
    VERSION,
    ImagePack,
    PackError,
    index_digest,
    shard_name,
)
from .source_files import Files, list_files, read_file

SHARD_BYTES = 256 << 20
MOST_SHARDS = 512
SAMPLE = 64  # images that are compared after writing, and whose change is measured
PLAN = "plan.json"


def write_pack(
    root: str | Path,
    out: str | Path,
    *,
    kind: str = "slice",
    size: int = 256,
    quality: int = 95,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImagePack:
    """Pack all images below a folder.

    Writes ``OUT.partial`` and renames it after a sample was compared. If it is stopped, the next
    call writes the missing shards. An up-to-date pack is returned unchanged; a pack of other files
    is replaced when the new one is complete.

    Args:
        root: Folder of the images.
        out: Folder of the pack; its parent must exist.
        kind: ``"slice"`` keeps the pixels; ``"resized-raw"`` and ``"resized-jpeg"`` shrink images.
        size: Short side of resized images; smaller ones are not enlarged.
        quality: Of resized JPEGs, 1 to 100.
        workers: Threads; None: the available cores.
        progress: Called with the number of files done and of all files.

    Raises:
        ValueError: If there are no images, an option is invalid, or a file changes meanwhile.
        FileExistsError: If ``out`` exists and is not a pack.
        RuntimeError: If jpegtran is needed and not installed, or another process writes this pack.
        OSError: If the disk is full; finished shards are kept for the next call.
    """
    check_name(kind, KINDS, "kind of pack")
    options = Options(
        kind, 0 if kind == "slice" else size, 0 if kind != "resized-jpeg" else quality
    )
    if size < 1 or not 1 <= quality <= 100:
        raise ValueError(f"size must be at least 1 and quality 1 to 100, got {size} and {quality}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    make = make_form(options)
    files = list_files(check_folder(root, "root"))
    target = Path(out).expanduser().absolute()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} of the pack does not exist")
    if target == files.root or files.root in target.parents:
        raise ValueError(
            f"the pack {str(target)!r} would be inside the packed folder; choose another"
        )
    with sole_writer(target):
        old = _present(target)
        made = {"kind": options.kind, "size": options.size, "quality": options.quality}
        if old is not None and (old.source, old.report.get("options")) == (files.key(), made):
            return old
        partial = target.with_name(target.name + PARTIAL)
        bounds = _prepare(partial, files, {**made, "version": VERSION, "source": files.key()})
        _write_shards(partial, files, bounds, make, workers or usable_cores(), progress)
        with named_writes(partial):
            report = {"options": made, **_join_shards(partial, files, len(bounds) - 1)}
            _manifest(partial, files, bounds, options, report)
        _compare(ImagePack(partial), files, make)
        _rename(partial, target)
    return ImagePack(target)


def _present(target: Path) -> ImagePack | None:
    """Return the existing pack; None if there is none, or a damaged one."""
    if not target.exists():
        return None
    if not (target / MANIFEST).is_file():
        raise FileExistsError(f"{str(target)!r} exists and is not a pack; choose another --out")
    with suppress(PackError):
        return ImagePack(target)
    return None


def _prepare(partial: Path, files: Files, plan: dict[str, Any]) -> list[int]:
    """Create the folder, or keep the shards of a stopped run with the same plan."""
    n = len(files.names)
    shards = max(-(-int(files.sizes.sum()) // SHARD_BYTES), min(16, -(-n // 64)))
    shards = min(shards, MOST_SHARDS, n)
    plan, plan_file, kept = {**plan, "shards": shards}, partial / PLAN, False
    with suppress(OSError, ValueError):
        kept = json.loads(plan_file.read_text(encoding="utf-8")) == plan
    if not kept:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        _write_whole(plan_file, json.dumps(plan).encode())
    return [n * shard // shards for shard in range(shards + 1)]


def _write_shards(
    partial: Path,
    files: Files,
    bounds: Sequence[int],
    make: Callable[[bytes, str, bool], Form],
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    total, stop, lock, done = len(files.names), threading.Event(), threading.Lock(), [0]

    def step(count: int) -> None:
        with lock:
            done[0] += count
            if progress is not None:
                progress(done[0], total)

    pool = ThreadPoolExecutor(workers)  # jpegtran and the decoders release the interpreter lock
    try:
        jobs = []
        for shard, (first, last) in enumerate(pairwise(bounds)):
            if (partial / f"{shard:05d}.json").is_file():
                step(last - first)
                continue
            span = range(first, last)
            jobs.append(pool.submit(_write_shard, partial, shard, span, files, make, stop, step))
        for job in as_completed(jobs):
            job.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _write_shard(
    partial: Path,
    shard: int,
    span: range,
    files: Files,
    make: Callable[[bytes, str, bool], Form],
    stop: threading.Event,
    step: Callable[[int], None],
) -> None:
    records, offset = np.zeros(len(span), RECORD), 0
    kept: list[tuple[str, str]] = []
    changes: list[float] = []
    every = max(1, len(files.names) // SAMPLE)
    half = partial / f"{shard_name(shard)}.half"
    with named_writes(half, remove=True), half.open("wb") as out:
        for place, i in enumerate(span):
            if stop.is_set():
                return
            content = read_file(files, i)
            form = make(content, files.names[i], i % every == 0)
            out.write(form.content)
            length = len(form.content)
            size, time = int(files.sizes[i]), int(files.times[i])
            records[place] = (shard, form.form, offset, length, size, time)
            offset += length
            if form.form == FILE and form.reason:
                kept.append((form.reason, files.names[i]))
            if form.change is not None:
                changes.append(form.change)
            step(1)
    half.replace(partial / shard_name(shard))
    records_file = partial / f"{shard:05d}.npy"
    with named_writes(records_file, remove=True), records_file.open("wb") as index:
        np.save(index, records, allow_pickle=False)
    # the last of three files: the shard is complete
    _write_whole(
        partial / f"{shard:05d}.json", json.dumps({"kept": kept, "changes": changes}).encode()
    )


def _join_shards(partial: Path, files: Files, shards: int) -> dict[str, Any]:
    """Join the indexes of the shards, and return the report."""
    indexes = [np.load(partial / f"{s:05d}.npy", allow_pickle=False) for s in range(shards)]
    records = np.concatenate(indexes)
    with (partial / RECORDS).open("wb") as index:
        np.save(index, records, allow_pickle=False)
    (partial / NAMES).write_bytes("\0".join(files.names).encode("utf-8", "surrogateescape"))
    reasons: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    changes: list[float] = []
    for shard in range(shards):
        said = json.loads((partial / f"{shard:05d}.json").read_text(encoding="utf-8"))
        changes += said["changes"]
        for reason, name in said["kept"]:
            reasons[reason] += 1
            if reasons[reason] <= 3:
                examples.setdefault(reason, []).append(name)
    kept = {reason: {"count": n, "names": examples[reason]} for reason, n in reasons.items()}
    return {
        "files": len(records),
        "kept_whole": kept,
        "source_bytes": int(files.sizes.sum()),
        "pack_bytes": int(records["length"].sum()),
        "mean_pixel_change": float(np.mean(changes)) if changes else 0.0,
    }


def _manifest(
    partial: Path,
    files: Files,
    bounds: Sequence[int],
    options: Options,
    report: dict[str, Any],
) -> None:
    shards = [(partial / shard_name(s)).stat().st_size for s in range(len(bounds) - 1)]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "kind": options.kind,
        "size": options.size,
        "count": len(files.names),
        "shards": shards,
        "index": index_digest(partial),
        "source": files.key(),
        "report": report,
    }
    _write_whole(partial / MANIFEST, json.dumps(manifest, indent=1).encode())


def _compare(pack: ImagePack, files: Files, make: Callable[[bytes, str, bool], Form]) -> None:
    """Encode a sample again and compare it with the stored bytes."""
    n = len(files.names)
    for i in sorted({n * k // SAMPLE for k in range(SAMPLE)}):
        form, stored = pack.stored(i)
        again = make(read_file(files, i), files.names[i], False)
        if form != again.form or stored.tobytes() != again.content:
            raise RuntimeError(
                f"the stored bytes of {files.names[i]!r} differ from those written; the disk or "
                f"the memory is faulty; remove {str(pack.path)!r} and run the command again"
            )


def _rename(partial: Path, target: Path) -> None:
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    partial.rename(target)  # if stopped before this, the next call finds all shards complete
    shutil.rmtree(old, ignore_errors=True)
    for leftover in (target / PLAN, *target.glob("[0-9]*.json"), *target.glob("[0-9]*.npy")):
        leftover.unlink()


def _write_whole(path: Path, content: bytes) -> None:
    half = path.with_name(path.name + ".half")
    with named_writes(half, remove=True):
        half.write_bytes(content)
    half.replace(path)
