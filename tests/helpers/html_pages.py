"""Reads an HTML page strictly: every element closed, every image and address noted."""

from __future__ import annotations

from html.parser import HTMLParser

EMPTY = {"meta", "img", "br", "hr", "link", "input"}


class PageReader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[dict[str, str | None]] = []
        self.images: list[tuple[str, str]] = []
        self.addresses: list[str] = []
        self.language, self.title, self.text = "", "", ""

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.add(tag)
        self.attributes.append(found)
        if tag == "html":
            self.language = found.get("lang") or ""
        if tag == "img":
            self.images.append((found["src"], found.get("alt") or ""))
        self.addresses += [
            value
            for name, value in found.items()
            if name in ("href", "src", "srcset", "action", "data", "poster")
            and not value.startswith("data:")
        ]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        if self.open[-1:] == ["title"]:
            self.title += data
        elif self.open[-1:] == ["style"]:
            assert "url(" not in data
            assert "@import" not in data
        else:
            self.text += data


def read_page(text: str) -> PageReader:
    reader = PageReader()
    reader.feed(text)
    reader.close()
    assert not reader.open, f"not closed: {reader.open}"
    return reader
