from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from html_pages import read_page
from PIL import Image

from datamodules import ImageFolderDataModule, samples
from datamodules.insight import Finding, Report, inspect
from datamodules.insight.overview_tables import sheets
from datamodules.insight.split_view import view_splits

NASTY = "<b>&\"'$x$ 猫"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    draws = np.random.default_rng(0)
    for name in (NASTY, "a very long name of a class, longer than any figure is wide, and on"):
        (root / name).mkdir()
        for k in range(20):
            pixels = draws.integers(0, 256, (24, 16 + k, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{k}\n{NASTY}.png")
    return inspect(ImageFolderDataModule(root, image_size=16, num_workers=0), figures=True)


@pytest.fixture(scope="module")
def written(report, tmp_path_factory):
    return report.save(tmp_path_factory.mktemp("out") / "look")


def test_a_report_is_one_page_that_needs_nothing_else(report, written):
    page = read_page(written[0].read_text(encoding="utf-8"))
    assert page.title == "Data of ImageFolderDataModule"
    assert not page.addresses
    assert len(page.images) == len(report.drawings) == 4
    assert NASTY in page.text
    for sentence in (finding.sentence for finding in report.findings):
        assert " ".join(sentence.split()) in " ".join(page.text.split())


def test_figures_lie_beside_the_page(written):
    assert written[0].name == "report.html"
    names = ["augmentation-train", "augmentation-val", "class-bars", "image-sizes"]
    assert [path.stem for path in written[1:]] == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:])


def test_a_report_can_be_named(tmp_path):
    drawn = Report("Data", findings=[Finding("error", "c", "s", "r")])
    assert drawn.save(tmp_path / "new" / "look.html") == [tmp_path / "new" / "look.html"]
    other = tmp_path / "table.csv"
    other.write_text("a")
    with pytest.raises(ValueError, match=r"ends in \.html"):
        drawn.save(other)
    assert other.read_text() == "a"


def test_a_notebook_gets_the_same_without_a_second_page(report):
    fragment = report._repr_html_()
    assert "<html" not in fragment
    assert len(read_page(fragment).images) == 4


# a headless window is never narrower than 500 pixels, a frame may be
FRAME = """<iframe style="border:0;height:9999px;width:{width}px" src="{page}" onload='
const d = this.contentDocument, m = [...d.images], w = d.documentElement.clientWidth;
const shown = m.filter(i => i.complete && i.naturalWidth && i.getBoundingClientRect().right <= w);
document.title += `[${{w}}: ${{d.documentElement.scrollWidth}} wide, ${{shown.length}} shown] `
'></iframe>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_the_page_without_scrolling_sideways(written, tmp_path):
    frames = [FRAME.format(width=width, page=written[0].as_uri()) for width in (400, 1280)]
    (tmp_path / "frames.html").write_text(f"<!DOCTYPE html><title></title>{''.join(frames)}")
    shown = in_chromium(tmp_path / "frames.html", tmp_path / "profile")
    found = re.findall(r"\[(\d+): (\d+) wide, (\d+) shown\]", shown)
    assert sorted(found, key=lambda f: int(f[0])) == [("400", "400", "4"), ("1280", "1280", "4")]


def in_chromium(page, profile):
    """The page's elements after it was loaded; no process is left."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    process = subprocess.Popen(
        ["chromium", *flags, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=120)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_tables_say_what_each_split_holds():
    dm = samples.wine(batch_size=8)
    seen, _ = view_splits(dm)
    made = {sheet.title: sheet for sheet in sheets(dm, seen)}
    counts = dict(zip(dm.class_counts, dm.classes, strict=True))
    ends = [f"{k} ({counts[k]})" for k in (min(counts), max(counts))]
    assert made["Splits"].rows[0] == ["train", "142", "79.8%", "3 of 3", *ends]
    assert [row[:4] for row in made["First batches"].rows[:2]] == [
        ["train", "inputs", "8 x 13", "float32"],
        ["train", "target", "8", "int64"],
    ]
    labels = dm.preview("train").target[:2].tolist()
    first = ", ".join(f"{label} class_{label}" for label in labels)
    assert made["First batches"].rows[1][-1].startswith(first)
    assert made["Classes"].rows[0][:3] == ["class_0", "0", str(dm.class_counts[0])]
    assert sheets(dm, {}) == []
