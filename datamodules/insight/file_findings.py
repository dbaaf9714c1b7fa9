"""Every file of a picture source: damaged, empty, misnamed and passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from ..core.cores import usable_cores
from ..core.decode import decode_image
from ..core.pictures import PictureDataset
from .findings import Finding
from .looked import Looked

MOST_NAMED = 20
ENDINGS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".gif": "GIF", ".bmp": "BMP"}
ENDINGS |= {".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF"}


def file_findings(seen: Mapping[str, Looked], facts: list[str]) -> Iterator[Finding]:
    """Decode every picture file, in threads; ``facts`` takes the lines for a person."""
    for split, one in seen.items():
        data = one.dataset
        if not isinstance(data, PictureDataset):
            continue
        paths = [path for path in data.sources if isinstance(path, str)]
        with ThreadPoolExecutor(usable_cores()) as pool:
            results = list(pool.map(_check, paths))
        facts.append(f"{split}: all {len(paths):,} files decoded")
        bad = [said for said, _ in results if said]
        for said in bad[:MOST_NAMED]:
            yield Finding("error", "damaged-file", f"{split}: {said}", "replace or remove it")
        if len(bad) > MOST_NAMED:
            said = f"{split}: {len(bad) - MOST_NAMED} more files are damaged"
            yield Finding("error", "damaged-file", said, "replace or remove them")
        odd = [said for _, said in results if said]
        if odd:
            said = f"{split}: {len(odd)} files are not what their ending says, such as {odd[0]}"
            yield Finding("note", "misnamed", said, "rename them for other programs' sake")


def _check(path: str) -> tuple[str, str]:
    """What is wrong with a file, and what it is when its ending says otherwise."""
    try:
        decode_image(path, mode="RGB", name=path)
        with Image.open(path) as image:
            kind = image.format or ""
    except Exception as error:
        return str(error), ""
    told = ENDINGS.get(Path(path).suffix.lower(), kind)
    kind = "JPEG" if kind == "MPO" else kind
    return "", "" if told == kind else f"{path} ({kind})"
