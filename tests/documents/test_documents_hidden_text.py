"""What changes the meaning is kept, and what nobody sees is not read but named: in pages, books, mail and the web."""

from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.document_files import make_zip_archive
from waystation.documents.readers.extraction import join_extracted_parts
from waystation.documents.readers.formats import extract_file
from waystation.documents.readers.html import read_html
from waystation.documents.readers.reader import SubprocessWebTextExtractor
from waystation.documents.table_engine.database import answer_query
from waystation.documents.table_engine.engine import EngineRequest
from waystation.documents.table_engine.grid import read_grid
from waystation.documents.tables import TableText


def text_of(html: str) -> str:
    return read_html(html).text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("2<sup>53</sup> ids, 10<sup>6</sup> rows, 12 m<sup>2</sup>", "2^53 ids, 10^6 rows, 12 m^2"),
        ("CO<sub>2</sub>, H<sub>2</sub>O, x<sub>i</sub>, log<sub>2</sub>8", "CO₂, H₂O, x_i, log₂8"),
        ("10<sup>6</sup>5 and 2<sup>n+1</sup>, x<sub>i</sub>y", "10^(6)5 and 2^(n+1), x_(i)y"),
        ("Ca<sup>2+</sup>, 10<sup>-3</sup>, e<sup>x<sup>2</sup></sup>", "Ca^2+, 10^-3, e^(x^2)"),
        ("the 4<sup>th</sup> of July, Acme<sup>®</sup>", "the 4th of July, Acme®"),
        ("said<sup><a href='#n1'>[1]</a></sup> so<sup>[2]</sup>", "said[1] so[2]"),
        ("10<span style='vertical-align: super; font-size: 8px'>6</span>", "10^6"),
        ("<style>.up{vertical-align:super}</style>10<span class='x up'>6</span>", "10^6"),
        ("<math><msup><mn>10</mn> <mn>6</mn></msup></math>", "10^6"),
        ("<math><mfrac><mi>a</mi><mi>b</mi></mfrac><msqrt><mn>12</mn></msqrt></math>", "a/b√(12)"),
        ("<math><msup><mfrac><mi>a</mi><mi>b</mi></mfrac><mn>2</mn></msup></math>", "(a/b)^2"),
        ("<math><msup><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></msup></math>", "(a+b)^2"),
        ("Price: <del>$500</del> <ins>$400</ins> <s>a month</s>", "Price: ~~$500~~ $400 ~~a month~~"),
        ("<strike>a</strike> <s>b <del>c</del></s>", "~~a~~ ~~b c~~"),
        ("<del><p>One.</p><h2>Two</h2></del><p>Three.</p>", "~~One.~~\n\n## ~~Two~~\n\nThree."),
        ("<span style='text-decoration:line-through'>gone</span>", "~~gone~~"),
        ("<s>a <b>b</b><br>c</s> d", "~~a b~~\n~~c~~ d"),
        ("<input type=checkbox checked> yes <input type=checkbox> no", "[x] yes [ ] no"),
        ("dred&shy;ged", "dredged"),
    ],
)
def test_raised_lowered_and_struck_out_text_is_told_apart(html: str, text: str) -> None:
    assert text_of(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<ol start=3><li>a<li>b</ol>", "3. a\n4. b"),
        ("<ol><li>a<li value=7>b<li>c</ol>", "1. a\n7. b\n8. c"),
        ("<ol reversed><li>a<li>b</ol>", "2. a\n1. b"),
        ("<ol type=a start=26><li>a<li>b</ol>", "z. a\naa. b"),
        ("<ol type=I start=4><li>a<li>b</ol>", "IV. a\nV. b"),
        ("<ol style='list-style-type: lower-roman'><li>a<li>b</ol>", "i. a\nii. b"),
        ("<ol style='list-style: none'><li>1.1 a</ol>", "- 1.1 a"),
        ("<ol><li><p>a</p><ol><li>b</ol><li>c</ol>", "1. a\n\n1. b\n\n2. c"),
        ("<ol><li>a<li hidden>b<li>c</ol>", "1. a\n2. c"),
        ("<ol><div><li>a</li></div><li>b</ol>", "1. a\n\n2. b"),
        ("<ol start=x><li value=y>a</ol>", "1. a"),
        ("<ul><li>a<li>b</ul>", "- a\n- b"),
    ],
)
def test_items_have_their_numbers(html: str, text: str) -> None:
    assert text_of(html) == text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<tr><th>R<th>Y<th>V<tr><td rowspan=2>N<td>23<td>1<tr><td>24<td>2", "R | Y | V\nN | 23 | 1\nN | 24 | 2"),
        ("<tr><th>R<th>Y<th>V<tr><td>S<td colspan=2>none", "R | Y | V\nS | none | none"),
        ("<tr><td>a<td>b<td rowspan=2>c<tr><td>d<td>e", "a | b | c\nd | e | c"),
        ("<tr><td rowspan=0>a<td>b<tr><td>c<tr><td>d", "a | b\na | c\na | d"),
        ("<tr><td rowspan=2 colspan=2>a<td>b<tr><td>c", "a | b\na | c"),
        ("<tr><td rowspan=2 colspan=2>a<td>b<tr><td>c<tr><td>d<td>e<td>f", "a | a | b\na | a | c\nd | e | f"),
        ("<tr><td colspan=3>Costs<tr><td>a<td>b<td>c", "Costs\na | b | c"),
        (
            "<tr><td colspan=2><td colspan=3>2024<td colspan=3>2023<tr><td colspan=2>Sales<td>$<td>39<td><td>$<td>38"
            "<tr><td colspan=2>Costs<td colspan=2>(2<td>)<td colspan=2>1<td><tr><td colspan=2>Share<td colspan=2>4<td>%"
            "<td colspan=2>5<td>%",
            "| 2024 | 2023\nSales | $ 39 | $ 38\nCosts | (2) | 1\nShare | 4% | 5%",
        ),
        ("<thead><tr><th rowspan=9>a<th>b</thead><tbody><tr><td>c<td>d</tbody>", "a | b\nc | d"),
        ("<tr><td>a<td style='display:none'>x<td>b", "a | b"),
        ("<tr><td><s>a</s><td>10<sup>6</sup>", "~~a~~ | 10^6"),
        ("<tr><td rowspan=99999999999>a<td colspan=-1>b<tr><td>c", "a | b\nc"),
    ],
)
def test_values_stand_below_their_headings_in_merged_cells(html: str, text: str) -> None:
    assert text_of(f"<table>{html}</table>") == text


def test_a_query_finds_values_of_merged_cells_in_their_columns() -> None:
    text = text_of(
        "<table><tr><th>Region<th>Year<th>Revenue<tr><td rowspan=2>North<td>2023<td>410<tr><td>2024<td>455</table>"
    )
    table = read_grid(TableText(name="t", text=text))
    asked = EngineRequest(sql="SELECT Region, Revenue FROM t WHERE Year = 2024", tables=(table,), max_rows=9)
    assert answer_query(asked).rows == (("North", "455"),)


def test_what_a_merged_cell_repeats_is_bounded() -> None:
    rows = "<tr>" + "<td rowspan=999>x" * 2_000 + "</tr>" + "<tr><td>y</td></tr>" * 1_000
    assert len(text_of(f"<table>{rows}</table>")) < 20_000_000 / 5


SECRET = "the price is $1"


@pytest.mark.parametrize(
    "hidden",
    [
        f"<p hidden>{SECRET}</p>",
        f"<div style='display:none'><p>{SECRET}</p></div>",
        f"<div style='DISPLAY : none !important'>{SECRET}</div>",
        f"<p style='visibility:hidden'>{SECRET}</p>",
        f"<p style='opacity:0'>{SECRET}</p>",
        f"<p style='font-size:0px'>{SECRET}</p>",
        f"<p style='mso-hide:all'>{SECRET}</p>",
        f"<p style='position:absolute;left:-9999px'>{SECRET}</p>",
        f"<p style='max-height:0;overflow:hidden'>{SECRET}</p>",
        f"<style>/* x */ p.gone, .other {{ display: none }}</style><p class='a gone'>{SECRET}</p>",
        f"<style>#a .b {{ display:none }}</style><div id=a><p><i class=b>{SECRET}</i></p></div>",
        f"<ul><li>a</li><li hidden>{SECRET}</li></ul>",
        f"<table><tr><td>a</td><td hidden>{SECRET}</td></tr></table>",
        f"<dialog>{SECRET}</dialog>",
        f"<div popover>{SECRET}</div>",
        f"<noscript>{SECRET}</noscript>",
        f"<datalist><option>{SECRET}</datalist>",
        f"<iframe srcdoc='<p hidden>{SECRET}</p>'></iframe>",
        f"<p style='visibility:hidden'><img alt='{SECRET}'></p>",
        *(
            f"<svg>{drawn}</svg>"
            for drawn in (
                f"<text display=none>{SECRET}</text>",
                f"<g visibility=hidden><text>{SECRET}</text></g>",
                f"<text opacity=0>{SECRET}</text>",
                f"<style><![CDATA[ .gone {{ display:none }} ]]></style><text class=gone>{SECRET}</text>",
                f"<defs><text>{SECRET}</text></defs>",
                f"<symbol id=a><text>{SECRET}</text></symbol>",
                f"<switch><g></g><text>{SECRET}</text></switch>",
                SECRET,
            )
        ),
    ],
)
def test_what_no_reader_sees_is_not_read_but_named(hidden: str) -> None:
    page = read_html(f"<p>before</p>{hidden}<p>behind</p>")
    assert "price" not in page.text
    assert page.text.startswith("before")
    assert page.text.endswith("behind")
    assert page.hidden is not None
    assert (page.hidden.name, page.hidden.reason.split(" that ")[0]) == ("hidden text", "1 passage (4 words)")


@pytest.mark.parametrize(
    "shown",
    [
        f"<style>@media print {{ p {{ display: none }} }} p:hover {{ display: none }}</style><p>{SECRET}</p>",
        f"<style>p {{ display: none }} p.a {{ display: block }}</style><p class=a>{SECRET}</p>",
        f"<div style='visibility:hidden'><p style='visibility:visible'>{SECRET}</p></div>",
        f"<div style='font-size:0'><p style='font-size:12px'>{SECRET}</p></div>",
        f"<details><summary>More</summary>{SECRET}</details>",
        f"<p hidden=until-found>{SECRET}</p>",
        f"<p aria-hidden=true>{SECRET}</p>",
        f"<style>.a {{ color: red</style><p class=a>{SECRET}</p>",
        f"<dialog open>{SECRET}</dialog>",
        f"<template shadowrootmode=open><p>{SECRET}</p></template>",
        f"<svg><text>{SECRET}</text></svg>",
        f"<svg:svg><svg:text>{SECRET}</svg:text></svg:svg>",
        f"<svg><defs><text id=a>{SECRET}</text></defs><use href='#a'/></svg>",
        f"<svg><g visibility=hidden><text visibility=visible>{SECRET}</text></g></svg>",
        f"<svg><foreignObject><div>{SECRET}</div></foreignObject></svg>",
        f"<svg><switch><foreignObject><p>{SECRET}</p></foreignObject><text>the price</text></switch></svg>",
    ],
)
def test_what_a_reader_can_see_is_read(shown: str) -> None:
    page = read_html(shown)
    assert SECRET in page.text
    assert page.hidden is None


def test_hidden_text_of_a_book_is_named_by_its_chapter_and_styles_of_the_book_hold() -> None:
    body = "<h1>One</h1><p>10<span class='up'>6</span></p><p class='gone'>x</p>"
    items = '<item id="a" href="a.xhtml"/><item id="c" href="a.css" media-type="text/css"/>'
    book = make_zip_archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<c><rootfile full-path="b.opf"/></c>',
            "b.opf": f'<p>{items}<itemref idref="a"/></p>',
            "a.xhtml": f"<html><head><link href='a.css'/></head>{body}</html>",
            "a.css": ".up { vertical-align: super } .gone { display: none }",
        }
    )
    found = extract_file(book, "a.epub")
    assert join_extracted_parts(found).text == "[chapter One]\n# One\n\n10^6"
    assert [item.name for item in found.skipped_items] == ["hidden text of chapter One"]


async def test_hidden_text_of_a_page_of_the_web_is_named() -> None:
    reader = SubprocessWebTextExtractor()
    try:
        text = await reader.read(b"<p>10<sup>6</sup> <s>rows</s></p><p hidden>Obey.</p>", ".html", "utf-8")
    finally:
        await reader.aclose()
    assert text.startswith("10^6 ~~rows~~\n\nLeft out of this page:\n- hidden text: 1 passage (1 word)")


def test_marks_of_ours_in_a_page_are_no_marks() -> None:
    assert text_of("".join(f"a{chr(code)}" for code in range(0xFDD0, 0xFDE0))) == "a" * 16


@given(st.text(alphabet="<>/supdelitrohn=2 \n\t.", max_size=200))
def test_no_mark_is_left_in_any_page(html: str) -> None:
    text = text_of(f"<table><tr><td><s><sup>{html}</table><ol><li><sub>{html}")
    assert not any(0xFDD0 <= ord(sign) <= 0xFDEF for sign in text)


@given(st.lists(st.sampled_from(["p", "li", "td", "h2", "s", "sup", "sub", "div", "pre", "q", "dd"]), max_size=12))
def test_every_word_of_a_page_that_is_seen_is_in_its_text(names: list[str]) -> None:
    html = "".join(f"<{name}>word{number}x " for number, name in enumerate(names))
    text = text_of(html)
    assert [number for number in range(len(names)) if f"word{number}x" not in text] == []


DRAWING = """<svg><metadata>nobody</metadata><title>Revenue</title><desc>By region</desc><script>nobody()</script>
<a href="/north"><text x="1" y="20">North <tspan font-weight="bold">410</tspan> million</text></a>
<text><tspan x="0" y="1">South</tspan><tspan
x="0" dy="12">455 <tspan x="1">m</tspan><tspan x="2">n</tspan></tspan></text>
</svg>"""


def test_a_drawing_is_read_text_by_text() -> None:
    lines = "Revenue\nBy region\n[ North 410 million ](/north)\nSouth 455 mn"
    assert text_of(f"<p>before</p>{DRAWING}<p>behind</p>") == f"before\n\n{lines}\n\nbehind"
    assert text_of(f"<table><tr><td>a<td>{DRAWING}</table>").startswith("a | Revenue By region ")
    assert text_of("<h2>See <svg><title>Home</title></svg> page</h2>") == "## See Home page"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a <img alt='Total  900 units' src=x> b", "a [image: Total 900 units] b"),
        ("<img alt=''><img src=x><img alt='x^2' aria-hidden=true><img alt=line role=presentation>", ""),
        ("<p>Thanks <img alt='\U0001f44d'>", "Thanks \U0001f44d"),
        ("<a href='/b'><img alt='Costs [1]'></a>", "[[image: Costs (1)]](/b)"),
        ("<map><area alt='North'></map>", "[image: North]"),
        ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</ruby>", "漢(kan)字(ji)"),
        ("<ruby>漢<rt>kan<rt></ruby>", "漢(kan)"),
        ("<select><option>A<option selected>B</select>", "[ ] A [x] B"),
        ("<select><option disabled>A<option>B<option>C</select>", "[ ] A [x] B [ ] C"),
        ("<select multiple><option>A<option value=b label='B'></select>", "[ ] A [ ] B"),
        ("<select><optgroup label=X><option>A<optgroup label=Y><option selected>B</select>", "X: [ ] A Y: [x] B"),
        ("<p>a<iframe srcdoc='<p>10<sup>6</sup></p>'>no frames</iframe>b", "a\n\n10^6\n\nb"),
    ],
)
def test_what_elements_show_that_is_not_text_is_read(html: str, text: str) -> None:
    page = read_html(html)
    assert (page.text.strip(), page.hidden) == (text, None)


def test_pages_within_pages_are_read_to_a_bound() -> None:
    page = SECRET
    for _ in range(5):
        page = f'<iframe srcdoc="{escape(page)}"></iframe>'
    found = read_html(f"a{page}")
    assert found.text == "a"
    assert found.hidden is not None


def test_a_book_of_drawings_is_read_and_pictures_in_its_order_are_named() -> None:
    kinds = {"a.svg": "image/svg+xml", "b.jpg": "image/jpeg", "c.xhtml": "application/xhtml+xml", "d.mp3": "audio/mpeg"}
    items = "".join(f'<item id="{name[0]}" href="{name}" media-type="{kind}"/>' for name, kind in kinds.items())
    order = "".join(f'<itemref idref="{name[0]}"/>' for name in kinds)
    book = make_zip_archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<c><rootfile full-path="b.opf"/></c>',
            "b.opf": f"<p>{items}{order}</p>",
            "a.svg": f"<?xml version='1.0'?>{DRAWING}",
            "c.xhtml": "<html><body><img src='x'/></body></html>",
        }
    )
    found = extract_file(book, "a.epub")
    assert join_extracted_parts(found).text.startswith("[section 1]\nRevenue\nBy region\n")
    assert [f"{item.name}: {item.reason}" for item in found.skipped_items] == [
        "section 2 (b.jpg): a picture without text",
        "section 3: no text, perhaps pictures",
        "section 4 (d.mp3): no text, but audio/mpeg",
    ]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "repeated",
    ["<svg><text>a", "<svg><switch>", "<svg><defs>", "<select><option>a", "<ruby>a<rt>", "<svg><foreignobject>"],
)
def test_drawings_and_fields_take_time_by_the_length_of_the_page(repeated: str) -> None:
    assert text_of("begun" + repeated * (100_000 // len(repeated))).startswith("begun")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "repeated", ["<s>a", "<sup>a", "<li><ol>", "<td>a", "<tr><td>a", "<table><tr><td rowspan=2>", "<p hidden>a</p>"]
)
def test_marks_take_time_by_the_length_of_the_page(repeated: str) -> None:
    assert text_of("begun" + repeated * (100_000 // len(repeated))).startswith("begun")


@pytest.mark.timeout(60)
def test_a_style_sheet_takes_time_by_its_length() -> None:
    rules = "".join(f".a{number} .b{number} {{display:none}}" for number in range(5_000))
    elements = "".join(f"<p class='b{number}'>x</p>" for number in range(5_000))
    assert read_html(f"<style>{rules}</style>{elements}").hidden is None


def test_an_email_keeps_marks_and_names_what_is_hidden() -> None:
    content = (
        b"From: a@example.org\r\nSubject: x\r\nContent-Type: text/html\r\n\r\n"
        b"<div style='display:none'>Preview</div><p>10<sup>6</sup> <s>rows</s></p>"
    )
    found = extract_file(content, "a.eml")
    assert found.parts[-1].text == "10^6 ~~rows~~"
    assert [item.name for item in found.skipped_items] == ["hidden text"]
