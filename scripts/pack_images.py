"""Pack a folder of images into a few large files, from which training reads faster.

A slice pack is lossless: JPEGs get restart markers, so that a crop is decoded from a part of the
file, with the same pixels. A resized pack has smaller images: it is the fastest, with other pixels.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if (here := str(Path(__file__).parent)) not in sys.path:
    sys.path.append(here)

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from datamodules.images.packs.image_pack import KINDS, ImagePack
from datamodules.images.packs.writer import write_pack
from failures import Ranks, exit_code

EPILOG = """
examples:
  python scripts/pack_images.py photos
  python scripts/pack_images.py photos --kind resized-raw --size 256 --out photos-256.pack
  python scripts/fit.py --data ImageFolderDataModule --data.root photos \\
      --data.image_options.pack photos-slice.pack

Ctrl-C stops; the same command resumes. Slice packs need jpegtran, one of libjpeg-turbo's tools.
Progressive JPEGs are converted without loss; CMYK, other formats, and files that need their EXIF
orientation or profile are kept whole. Exit codes: 0, 1 for data, 2 for usage, 130 for
Ctrl-C.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all options."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", help="folder of the images, with or without train/ and val/")
    parser.add_argument("--out", help="folder of the pack (default: beside ROOT, ROOT-KIND.pack)")
    parser.add_argument("--kind", choices=KINDS, default="slice", help="default: slice, lossless")
    parser.add_argument("--size", type=int, default=256, help="short side of resized images")
    parser.add_argument("--quality", type=int, default=95, help="of resized JPEGs, 1 to 100")
    parser.add_argument("--workers", type=int, help="threads (default: all cores)")
    parser.add_argument("--traceback", action="store_true", help="show errors in full")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    return exit_code(pack, sys.argv[1:] if arguments is None else arguments)


def pack(arguments: list[str], ranks: Ranks) -> None:
    """Write the pack with a progress bar, and print a report."""
    options = build_parser().parse_args(arguments)
    root = Path(options.root).expanduser().absolute()
    out = Path(options.out) if options.out else root.with_name(f"{root.name}-{options.kind}.pack")
    bar = Progress(
        TextColumn("packing"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    try:
        with bar:
            task = bar.add_task("", total=None)
            made = write_pack(
                root,
                out,
                kind=options.kind,
                size=options.size,
                quality=options.quality,
                workers=options.workers,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command resumes") from None
    print(describe(made))


def describe(made: ImagePack) -> str:
    """Return the report of a pack as text."""
    report = made.report
    before, after = report["source_bytes"], report["pack_bytes"]
    lines = [
        f"{'pack':<14}{made.path}",
        f"{'images':<14}{report['files']:,}",
        f"{'size':<14}{before / 1e6:,.1f} MB of files, {after / 1e6:,.1f} MB packed",
    ]
    if made.kind == "slice":
        lines.append(f"{'pixels':<14}the same; each file was compared")
    else:
        lines.append(
            f"{'pixels':<14}changed: {report['mean_pixel_change']:.2f} of 255 on average in crops "
            f"of a quarter of the image (short side {made.size})"
        )
    for reason, kept in sorted(report["kept_whole"].items()):
        more = ", ..." if kept["count"] > len(kept["names"]) else ""
        lines.append(
            f"{'kept whole':<14}{kept['count']:,}: {reason} ({', '.join(kept['names'])}{more})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
