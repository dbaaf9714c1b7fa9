from __future__ import annotations

import pytest
from html_pages import read_page

from datamodules.insight.html_page import Card, Page

NASTY = "<script>alert(1)</script> & \"quoted\" 'name'\nline\x00\udc80"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def page():
    page = Page(NASTY, NASTY)
    page.heading(NASTY, NASTY)
    page.findings(
        [("error", NASTY, NASTY, NASTY), ("warning", "w", "s", "r"), ("note", "n", "s", "r")]
    )
    page.table([NASTY, "n"], [[NASTY, "1,234"], ["a", ""], ["b", "-0.5%"]])
    page.figures([(NASTY, NASTY, PNG)])
    page.cards(
        [Card(NASTY, [NASTY], PNG, NASTY, NASTY, [(NASTY, NASTY)], small=True), Card("bare")]
    )
    page.lines(NASTY, [NASTY], folded=False)
    page.lines("none", [])
    return page


def test_every_text_is_escaped_and_every_element_closed(page):
    found = read_page(page.html())
    assert "script" not in found.tags
    assert found.title.startswith("<script>alert(1)</script> & \"quoted\" 'name'")
    assert all("onerror" not in attributes for attributes in found.attributes)
    assert "\x00" not in page.html()
    assert "\\udc80" in page.html()


def test_a_page_has_language_title_and_words_for_images_and_loads_nothing(page):
    found = read_page(page.html())
    assert found.language == "en"
    assert found.title
    assert len(found.images) == 2
    assert all(alt and source.startswith("data:image/png;base64,") for source, alt in found.images)
    assert not found.addresses


def test_levels_are_said_in_words_and_signs(page):
    text = read_page(page.html()).text
    for said in (
        "\N{HEAVY BALLOT X} error",
        "\N{WARNING SIGN} warning",
        "\N{INFORMATION SOURCE} note",
    ):
        assert said in text
    assert "What to do: r" in text


def test_numbers_stand_at_the_right_and_long_cells_break():
    page = Page("t")
    page.table(["a", "b"], [["x" * 41, "1"], ["y", "2.5%"]])
    html = page.html()
    assert '<td class="number">1</td>' in html
    assert f'<td class="long">{"x" * 41}</td>' in html
    assert "<td>y</td>" in html


def test_a_text_keeps_its_lines():
    page = Page("t")
    page.cards([Card("c", text="first\nsecond\tthird")])
    assert "first\nsecond\tthird" in page.html()


def test_no_finding_is_said():
    page = Page("t")
    page.findings([])
    assert "no finding" in read_page(page.fragment()).text


def test_a_fragment_changes_nothing_outside_of_itself():
    fragment = Page("t").fragment()
    style = fragment[len("<style>") : fragment.index("</style>")]
    rules = [rule.split("{")[0].strip() for rule in style.split("}") if rule.strip()]
    assert rules
    assert all(part.strip().startswith(".look") for rule in rules for part in rule.split(","))
