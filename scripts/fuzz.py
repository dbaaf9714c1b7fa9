"""Read damaged files, each is read or refused by name: ``python scripts/fuzz.py table``.

An exception that is not the project's own, and a crash of the interpreter, are printed with the
seed of the input that did it; the same seed makes the same input on any machine.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the project, from anywhere

from PIL import Image

EXPECTED = (ValueError, OSError, RuntimeError)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "ICO")
CSV = (
    b'id,city,size,price,label\n1,Bonn,3.5,"1,200",a\n2,"New\nYork",NA,3,b\n'
    b'3,"say ""no""",1e9,-4,a\n4,,inf,5,b\n'
)


def seeds_of(target: str) -> list[bytes]:
    """Whole files that inputs are made from."""
    if target == "table":
        return [CSV, CSV.replace(b",", b";"), CSV.decode().encode("utf-16"), b"\xef\xbb\xbf" + CSV]
    picture = Image.linear_gradient("L").resize((24, 16)).convert("RGB")
    files = []
    for kind in FORMATS:
        stream = io.BytesIO()
        picture.save(stream, kind)
        files.append(stream.getvalue())
    return files


def mutated(content: bytes, draw: random.Random) -> bytes:
    """A file with a few bytes changed, put in, taken out or repeated, or its end cut off."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data)) if data else 0
        kind = draw.randrange(5)
        if kind == 0 and data:
            data[at] = draw.randrange(256)
        elif kind == 1:
            data[at:at] = draw.randbytes(draw.randint(1, 8))
        elif kind == 2:
            del data[at : at + draw.randint(1, 8)]
        elif kind == 3:
            data[at:at] = data[at : at + draw.randint(1, 32)]
        elif draw.random() < 0.3:
            del data[at:]
    return bytes(data)


def reader_of(target: str) -> tuple[str, Callable[[Path], object]]:
    """Ending of the target's files, and what reads one."""
    if target == "table":
        from datamodules.core.tables import read_table

        return ".csv", lambda path: read_table(path)
    from datamodules.core.decode import decode_image

    return ".img", lambda path: decode_image(path, max_pixels=1 << 20)


def fuzz(target: str, count: int, seed: int) -> int:
    """Try ``count`` inputs from ``seed`` on; return the number of foreign exceptions."""
    ending, read = reader_of(target)
    files, came = seeds_of(target), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"input{ending}"
        for number in range(seed, seed + count):
            path.write_bytes(mutated(files[number % len(files)], random.Random(number)))
            # behind a crash the last line tells which input it was
            sys.stderr.write(f"\r{target} seed {number}")
            try:
                read(path)
                came["read"] += 1
            except EXPECTED as error:
                named = path.name in str(error)
                came["refused" if named else "without its name"] += 1
                if not named:
                    print(f"\nseed {number}: the error lacks the file's name: {error!r}"[:300])
            except Exception as error:
                came["foreign"] += 1
                print(f"\nseed {number}: {type(error).__name__}: {error}"[:300])
    print(f"\n{target}: {count} inputs from seed {seed}: {dict(sorted(came.items()))}")
    return came["foreign"] + came["without its name"]


def main() -> int:
    """Parse and try."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", choices=["decode", "table"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first input")
    options = parser.parse_args()
    faulthandler.enable()
    return min(1, fuzz(options.target, options.count, options.seed))


if __name__ == "__main__":
    sys.exit(main())
