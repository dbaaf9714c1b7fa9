"""Write a report as an HTML page and PNG figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .html_page import Page

if TYPE_CHECKING:
    from .findings import Report


def page_of(report: Report) -> Page:
    """Return a report as a page: findings first, then tables, figures and facts."""
    page = Page(f"Data of {report.name}", report.counted())
    page.heading("Findings")
    page.findings(report.findings)
    for sheet in report.sheets:
        page.heading(sheet.title)
        page.table(sheet.header, sheet.rows)
        if sheet.left_out:
            page.text(f"{sheet.left_out:,} more rows are not shown")
    for split in dict.fromkeys(step.split for step in report.steps):
        page.heading(f"One {split} sample, step by step")
        rows = [list(step[1:]) for step in report.steps if step.split == split]
        page.table(["step", "size", "dtype", "values"], rows)
    if report.drawings:
        page.heading("Figures")
        page.figures((d.title, d.text, d.png()) for d in report.drawings)
    if report.hardest is not None:
        report.hardest.show(page)
    page.heading("In words")
    for title, facts in report.sections.items():
        page.lines(title, facts, folded=title in ("Splits", "First batches"))  # tables above
    return page


def save_report(report: Report, path: str | Path) -> list[Path]:
    """Write a report as one HTML file, and its figures beside it as PNG files.

    Args:
        report: The result of an inspection.
        path: A file name that ends in ``.html``, or a folder for ``report.html``; created if
            missing.

    Returns:
        The page, then the figures.

    Raises:
        ValueError: If ``path`` is another kind of file.
    """
    place = Path(path).expanduser()
    page = place if place.suffix.lower() in (".html", ".htm") else place / "report.html"
    if page != place and place.suffix and place.exists() and not place.is_dir():
        raise ValueError(
            f"a report is written to a folder or a file that ends in .html, got the existing file "
            f"{str(path)!r}; choose another name"
        )
    page.parent.mkdir(parents=True, exist_ok=True)
    stem = "" if page != place else f"{page.stem}-"
    written = [page]
    page.write_text(page_of(report).html(), encoding="utf-8")
    for drawing in report.drawings:
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in drawing.name)
        written.append(page.with_name(f"{stem}{name}.png"))
        written[-1].write_bytes(drawing.png())
    return written
