"""Write an HTML page that needs no network, no script and no other file."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# system colours, so that a dark page is dark; levels differ by sign and word, not by colour alone
STYLE = """
.look { font: 16px/1.45 system-ui, sans-serif; overflow-wrap: anywhere; }
.look h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
.look h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.look p { margin: .25rem 0 .75rem; }
.look code { font-size: .875em; }
.look .scroll { overflow-x: auto; }
.look table { border-collapse: collapse; overflow-wrap: normal; }
.look th, .look td { padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #8886; white-space: nowrap; }
.look td.long { white-space: normal; min-width: 16rem; max-width: 28rem; overflow-wrap: anywhere; }
.look td.number, .look th.number { text-align: right; font-variant-numeric: tabular-nums; }
.look ul.findings { list-style: none; padding: 0; margin: 0; }
.look ul.findings li { border-left: .3rem solid #888; padding: .25rem 0 .25rem .75rem;
  margin: 0 0 .75rem; }
.look ul.findings li.error { border-left-style: double; border-left-color: #c62828; }
.look ul.findings li.warning { border-left-style: dashed; border-left-color: #b26a00; }
.look ul.findings li.note { border-left-style: dotted; border-left-color: #1565c0; }
.look .remedy { display: block; }
.look .figures { display: grid; gap: 1.5rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 29rem), 1fr)); }
.look figure { margin: 0; }
.look figure h3 { font-size: 1rem; margin: 0 0 .5rem; }
.look img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
.look figure > img { width: 29rem; }
.look figcaption { font-size: .875rem; margin-top: .25rem; }
.look .cards { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 13rem), 1fr)); }
.look .card { border: 1px solid #8886; border-radius: 4px; padding: .6rem; font-size: .875rem; }
.look .card img { width: 100%; max-height: 14rem; object-fit: contain; image-rendering: auto; }
.look .card img.small { image-rendering: pixelated; }
.look .card p { margin: .25rem 0; }
.look .card .text { white-space: pre-wrap; max-height: 12rem; overflow-y: auto; }
.look summary { cursor: pointer; }
"""
WHOLE = """
:root { color-scheme: light dark; }
body { margin: 0; }
.look { max-width: 76rem; margin: 0 auto; padding: 1rem; }
@media (max-width: 40rem) { .look table { font-size: .8125rem; } }
"""
SIGNS = {
    "error": "\N{HEAVY BALLOT X}",
    "warning": "\N{WARNING SIGN}",
    "note": "\N{INFORMATION SOURCE}",
}
LONG = 40  # characters from which a cell may wrap
NUMBER = re.compile(r"[-+]?[\d,.]+( ?%)?")


class Card(NamedTuple):
    """One sample on a page.

    Attributes:
        title: Shown first.
        lines: Shown last.
        png: Image of the sample.
        alt: The image in words.
        text: Text of the sample, line breaks kept.
        cells: Column names and cells of the sample.
        small: Whether the image has few pixels, to be shown as squares.
    """

    title: str
    lines: Sequence[str] = ()
    png: bytes | None = None
    alt: str = ""
    text: str | None = None
    cells: Sequence[tuple[str, str]] = ()
    small: bool = False


class Page:
    """A page that is built part by part; every text is escaped.

    Args:
        title: Title of the page.
        lead: A sentence below it.

    Example:
        >>> page = Page("Data of <mine>")
        >>> page.fragment().endswith("<h1>Data of &lt;mine&gt;</h1></div>")
        True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self.title = title
        self._parts = [f"<h1>{_escaped(title)}</h1>"]
        if lead:
            self.text(lead)

    def heading(self, title: str, lead: str = "") -> None:
        """Add a heading, and a sentence below it."""
        self._parts.append(f"<h2>{_escaped(title)}</h2>")
        if lead:
            self.text(lead)

    def findings(self, found: Iterable[tuple[str, str, str, str]]) -> None:
        """Add findings: level, code, sentence, remedy."""
        items = [
            f'<li class="{_escaped(level)}"><b>{SIGNS.get(level, "")} {_escaped(level)}</b> '
            f"<code>{_escaped(code)}</code> {_escaped(sentence)}"
            f'<span class="remedy">What to do: {_escaped(remedy)}</span></li>'
            for level, code, sentence, remedy in found
        ]
        if items:
            self._parts.append(f'<ul class="findings">{"".join(items)}</ul>')
        else:
            self._parts.append("<p>\N{CHECK MARK} no finding</p>")

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table; columns of numbers are aligned right."""
        lines = [[str(cell) for cell in row] for row in rows]
        columns = zip(*lines, strict=True) if lines else [()] * len(header)
        right = [bool(c) and all(NUMBER.fullmatch(cell) or not cell for cell in c) for c in columns]
        marks = [' class="number"' if number else "" for number in right]
        head = "".join(
            f'<th scope="col"{mark}>{_escaped(name)}</th>'
            for name, mark in zip(header, marks, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(_cell(cell, mark) for cell, mark in zip(line, marks, strict=True))
            + "</tr>"
            for line in lines
        )
        self._parts.append(
            f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    def figures(self, made: Iterable[tuple[str, str, bytes]]) -> None:
        """Add figures: title, description in words, PNG bytes."""
        items = [
            f'<figure><h3>{_escaped(title)}</h3><img src="{data_uri(png)}" '
            f'alt="{_escaped(f"{title}: {text}")}"><figcaption>{_escaped(text)}</figcaption>'
            "</figure>"
            for title, text, png in made
        ]
        if items:
            self._parts.append(f'<div class="figures">{"".join(items)}</div>')

    def cards(self, cards: Iterable[Card]) -> None:
        """Add samples in a grid."""
        self._parts.append(f'<div class="cards">{"".join(map(_card, cards))}</div>')

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{_escaped(text)}</p>")

    def lines(self, title: str, lines: Sequence[str], *, folded: bool = True) -> None:
        """Add a list of facts, folded or open."""
        if lines:
            items = "".join(f"<li>{_escaped(line)}</li>" for line in lines)
            opened = "" if folded else " open"
            self._parts.append(
                f"<details{opened}><summary>{_escaped(title)}</summary><ul>{items}</ul></details>"
            )

    def fragment(self) -> str:
        """Return the parts for a notebook; its own style is not changed."""
        return f'<style>{STYLE}</style><div class="look">{"".join(self._parts)}</div>'

    def html(self) -> str:
        """Return the whole page."""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{_escaped(self.title)}</title>\n<style>{STYLE}{WHOLE}</style>\n</head>\n"
            f'<body>\n<main class="look">\n{chr(10).join(self._parts)}\n</main>\n</body>\n</html>\n'
        )


def data_uri(png: bytes) -> str:
    """Return PNG bytes as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _card(card: Card) -> str:
    parts = [f"<p><b>{_escaped(card.title)}</b></p>"]
    if card.png is not None:
        mark = ' class="small"' if card.small else ""
        parts.append(f'<img{mark} src="{data_uri(card.png)}" alt="{_escaped(card.alt)}">')
    if card.text is not None:
        parts.append(f'<p class="text" dir="auto">{_escaped(card.text, keep_lines=True)}</p>')
    if card.cells:
        rows = "".join(f"<tr>{_cell(name)}{_cell(cell)}</tr>" for name, cell in card.cells)
        parts.append(f'<div class="scroll" tabindex="0"><table><tbody>{rows}</tbody></table></div>')
    parts += [f"<p>{_escaped(line)}</p>" for line in card.lines]
    return f'<div class="card">{"".join(parts)}</div>'


def _cell(text: object, mark: str = "") -> str:
    long = ' class="long"' if len(str(text)) > LONG else mark
    return f"<td{long}>{_escaped(text)}</td>"


def _escaped(text: object, *, keep_lines: bool = False) -> str:
    # file names may contain bytes that are not text and control characters
    valid = str(text).encode("utf-8", "backslashreplace").decode()
    kept = "\n\t" if keep_lines else ""
    valid = "".join(
        c if c.isprintable() or c in kept else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}"
        for c in valid
    )
    return html.escape(valid)
