"""Word files: what their readers see is read, whatever it stands in; numbers and marks are kept; the rest is named."""

from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.document_files import make_zip_archive
from waystation.documents.readers.extraction import UnreadableFileError, join_extracted_parts
from waystation.documents.readers.formats import extract_file
from waystation.documents.readers.passage_image import encode_png

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SPACES = (
    f'xmlns:w="{W}" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:o="urn:schemas-microsoft-com:office:office" '
    'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart" xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:wne="http://schemas.microsoft.com/office/word/2006/wordml"'
)
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
KIND = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(content: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{content if content.startswith('<') else run(content)}</w:p>"


def part(name: str, content: str) -> str:
    return f"<w:{name} {SPACES}>{content}</w:{name}>"


def links(*kinds: str) -> str:
    listed = (f'<Relationship Id="{kind}" Type="{KIND}/{kind}" Target="{kind}.xml"/>' for kind in kinds)
    return f'<Relationships xmlns="{RELATIONS}">{"".join(listed)}</Relationships>'


def read(body: str, members: Mapping[str, str] = {}) -> tuple[str, list[str]]:
    """The text of a document with this body, and what was left out."""
    document = part("document", f"<w:body>{body}</w:body>")
    linked = {"word/_rels/document.xml.rels": links(*(name[5:-4] for name in members))}
    found = join_extracted_parts(
        extract_file(make_zip_archive({"word/document.xml": document, **linked, **members}), "a.docx")
    )
    return found.text, [f"{item.name}: {item.reason}" for item in found.skipped_items]


def text_of(body: str, members: Mapping[str, str] = {}) -> str:
    text, left_out = read(body, members)
    assert left_out == []
    return text


def level(number: int, kind: str, text: str, more: str = "") -> str:
    written = f'<w:start w:val="1"/><w:numFmt w:val="{kind}"/>{more}<w:lvlText w:val="{text}"/>'
    return f'<w:lvl w:ilvl="{number}">{written}</w:lvl>'


def numbering(*levels: str, num: str = "") -> dict[str, str]:
    lists = (
        f'<w:abstractNum w:abstractNumId="0">{"".join(levels)}</w:abstractNum>'
        f'<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>{num}'
    )
    return {"word/numbering.xml": part("numbering", lists)}


def item(text: str, at: int = 0, num: int = 1, more: str = "") -> str:
    return paragraph(text, f'{more}<w:numPr><w:ilvl w:val="{at}"/><w:numId w:val="{num}"/></w:numPr>')


CLAUSES = (level(0, "decimal", "%1."), level(1, "decimal", "%1.%2"), level(2, "lowerLetter", "(%3)"))


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]


def test_clauses_have_the_numbers_that_word_shows() -> None:
    body = "".join(
        [item("A"), item("B"), item("C", 1), item("D", 1), item("E", 2), item("F", 2), item("G"), item("H", 1)]
    )
    shown = ["1. A", "2. B", "2.1 C", "2.2 D", "(a) E", "(b) F", "3. G", "3.1 H"]
    assert lines(text_of(body, numbering(*CLAUSES))) == shown


@pytest.mark.parametrize(
    ("levels", "items", "shown"),
    [
        ([level(0, "upperRoman", "Article %1")], [0, 0, 0, 0], "Article I x|Article II x|Article III x|Article IV x"),
        ([level(0, "ordinal", "%1"), level(1, "decimalZero", "%2")], [0, 1, 1], "1st x|01 x|02 x"),
        ([level(0, "upperRoman", "%1."), level(1, "decimal", "%1.%2", "<w:isLgl/>")], [0, 0, 1], "I. x|II. x|2.1 x"),
        ([CLAUSES[0], level(1, "decimal", "%2.", '<w:lvlRestart w:val="0"/>')], [0, 1, 0, 1], "1. x|1. x|2. x|2. x"),
        ([level(0, "bullet", "•")], [0, 0], "- x|- x"),
        ([level(0, "bullet", "☒")], [0], "☒ x"),
        ([level(0, "none", "")], [0], "- x"),
        ([CLAUSES[0], CLAUSES[1]], [1, 1], "1.1 x|1.2 x"),
    ],
)
def test_every_way_of_numbering_is_known(levels: list[str], items: list[int], shown: str) -> None:
    assert lines(text_of("".join(item("x", at) for at in items), numbering(*levels))) == shown.split("|")


def test_a_list_that_begins_anew_shares_its_levels() -> None:
    override = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride>'
    num = f'<w:num w:numId="2"><w:abstractNumId w:val="0"/>{override}</w:num>'
    body = "".join([item("a"), item("b", num=2), item("c", num=2), item("d")])
    assert lines(text_of(body, numbering(*CLAUSES, num=num))) == ["1. a", "7. b", "8. c", "9. d"]


def test_headings_and_paragraphs_have_the_numbers_of_their_styles() -> None:
    numbers = '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
    styles = (
        f'<w:style w:type="paragraph" w:styleId="H"><w:name w:val="heading 1"/>{numbers}</w:style>'
        '<w:style w:type="paragraph" w:styleId="I"><w:name w:val="Mine"/><w:basedOn w:val="H"/></w:style>'
    )
    members = {"word/styles.xml": part("styles", styles), **numbering(*CLAUSES)}
    off = '<w:pStyle w:val="H"/><w:numPr><w:numId w:val="0"/></w:numPr>'
    body = paragraph("A", '<w:pStyle w:val="H"/>') + paragraph("B", '<w:pStyle w:val="I"/>') + paragraph("C", off)
    assert lines(text_of(body, members)) == ["# 1. A", "2. B", "# C"]


def style(key: str, based_on: str = "", numbers: str = "") -> str:
    properties = f"<w:pPr><w:numPr>{numbers}</w:numPr></w:pPr>" if numbers else ""
    return f'<w:style w:type="paragraph" w:styleId="{key}"><w:basedOn w:val="{based_on}"/>{properties}</w:style>'


@pytest.mark.parametrize(
    ("second", "linked", "properties", "shown"),
    [
        ('<w:ilvl w:val="1"/>', "", "", "1.1 B"),
        ("", '<w:pStyle w:val="Two"/>', "", "1.1 B"),
        ("", "", "", "2. B"),
        ('<w:ilvl w:val="1"/>', "", '<w:numPr><w:ilvl w:val="2"/></w:numPr>', "(a) B"),
        ('<w:ilvl w:val="1"/>', "", '<w:numPr><w:numId w:val="1"/></w:numPr>', "1.1 B"),
        ('<w:ilvl w:val="1"/>', "", '<w:numPr><w:numId w:val="0"/></w:numPr>', "B"),
    ],
)
def test_a_level_is_that_of_the_nearest_style_whichever_style_has_the_list(
    second: str, linked: str, properties: str, shown: str
) -> None:
    styles = style("One", "", '<w:ilvl w:val="0"/><w:numId w:val="1"/>' if not linked else '<w:numId w:val="1"/>')
    styles += style("Two", "One", second) + style("Three", "Two")
    levels = (CLAUSES[0], level(1, "decimal", "%1.%2", linked), CLAUSES[2])
    members = {"word/styles.xml": part("styles", styles), **numbering(*levels)}
    for name in ("Two", "Three"):
        body = paragraph("A", '<w:pStyle w:val="One"/>') + paragraph("B", f'<w:pStyle w:val="{name}"/>{properties}')
        assert lines(text_of(body, members)) == ["1. A", shown]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (run("10") + run("6", '<w:vertAlign w:val="superscript"/>') + run(" rows"), "10^6 rows"),
        (run("CO") + run("2", '<w:vertAlign w:val="subscript"/>'), "CO₂"),
        (run("10") + run("6", '<w:position w:val="8"/>'), "10^6"),
        (run("10") + run("6", '<w:position w:val="4pt"/>'), "10^6"),
        (run("10") + run("6", '<w:position w:val="2pt"/>'), "106"),
        (run("10") + run("6", '<w:rStyle w:val="up"/>'), "10^6"),
        (run("free", "<w:strike/>"), "~~free~~"),
        (run("free", "<w:dstrike/>"), "~~free~~"),
        (run("free", '<w:rStyle w:val="gone"/>'), "~~free~~"),
        (run("free", '<w:rStyle w:val="gone"/><w:strike w:val="0"/>'), "free"),
        (
            "<m:oMath><m:sSup><m:e><m:r><m:t>10</m:t></m:r></m:e><m:sup><m:r><m:t>6</m:t></m:r></m:sup></m:sSup></m:oMath>",
            "10^6",
        ),
        (
            "<m:oMath><m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f></m:oMath>",
            "(a+b)/2",
        ),
    ],
)
def test_raised_lowered_and_struck_out_text_is_told_apart(content: str, text: str) -> None:
    styles = (
        '<w:style w:type="character" w:styleId="up"><w:rPr><w:vertAlign w:val="superscript"/></w:rPr></w:style>'
        '<w:style w:type="character" w:styleId="gone"><w:rPr><w:strike/></w:rPr></w:style>'
    )
    assert text_of(paragraph(content), {"word/styles.xml": part("styles", styles)}) == text


def math(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def fraction(over: str, under: str, kind: str = "bar") -> str:
    kind = f'<m:fPr><m:type m:val="{kind}"/></m:fPr>'
    return f"<m:f>{kind}<m:num>{math(over)}</m:num><m:den>{math(under)}</m:den></m:f>"


def each(name: str, *elements: str, properties: str = "") -> str:
    inner = "".join(f"<m:e>{math(element)}</m:e>" for element in elements)
    return f"<m:{name}><m:{name}Pr>{properties}</m:{name}Pr>{inner}</m:{name}>"


braced = '<m:dPr><m:begChr m:val="{"/><m:endChr m:val=""/></m:dPr>'


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (math("cos") + fraction("nx", "L") + math("dx"), "cos nx/L dx"),
        (f"<m:sSup><m:e>{fraction('x-c', 'v')}</m:e><m:sup>{math('2')}</m:sup></m:sSup>", "((x-c)/v)^2"),
        (f"<m:d><m:e>{fraction('n', 'k', 'noBar')}</m:e></m:d>", "(n choose k)"),
        (f"<m:rad><m:deg/><m:e>{math('a+b')}</m:e></m:rad>", "√(a+b)"),
        (f"<m:sSub><m:e>{math('R')}</m:e><m:sub>{math('i')}</m:sub></m:sSub>" + math("x"), "R_i x"),
        (each("eqArr", "a=b", "c+d=e"), "a=b; c+d=e"),
        (each("eqArr", "x&amp;=1&amp;if y", "z&amp;=2"), "x=1 if y; z=2"),
        (each("d", "a", "b"), "(a|b)"),
        (each("d", "a", "b", properties='<m:begChr m:val="["/><m:sepChr m:val=","/><m:endChr m:val=")"/>'), "[a, b)"),
        (f"<m:d>{braced}<m:e>{each('eqArr', '-x, &amp;x&lt;0', 'x, &amp;x≥0')}</m:e></m:d>", "{-x, x<0; x, x≥0"),
        (f"<m:m>{each('mr', '1', '0')}{each('mr', '0', '1')}</m:m>", "[1, 0; 0, 1]"),
        (f"<m:sPre><m:sub>{math('6')}</m:sub><m:sup>{math('14')}</m:sup><m:e>{math('C')}</m:e></m:sPre>", "₆^14 C"),
        (f"<m:func><m:fName>{math('sin')}</m:fName><m:e>{math('x')}</m:e></m:func>", "sin x"),
        (
            f"<m:func><m:fName><m:limLow><m:e>{math('lim')}</m:e><m:lim>{math('n→∞')}</m:lim></m:limLow></m:fName>"
            f"<m:e>{math('a')}</m:e></m:func>",
            "lim_(n→∞) a",
        ),
        (f"<m:nary><m:sub>{math('0')}</m:sub><m:sup>{math('1')}</m:sup><m:e>{math('x')}</m:e></m:nary>", "∫₀^1 x"),
        (each("bar", "x", properties='<m:pos m:val="top"/>') + math("+1"), "x\u0305+1"),
        (each("bar", "AB", properties='<m:pos m:val="top"/>'), "¯(AB)"),
        (each("acc", "v", properties='<m:chr m:val="\u20d7"/>'), "v\u20d7"),
        (
            math("A") + each("groupChr", "heat", properties='<m:chr m:val="→"/><m:pos m:val="bot"/>') + math("B"),
            "A→^heat B",
        ),
        (each("groupChr", "a+b"), "a+b"),
        (each("phant", "unseen", properties='<m:show m:val="0"/>') + math("x"), "x"),
    ],
)
def test_formulas_are_read_on_one_line(formula: str, text: str) -> None:
    assert text_of(paragraph(f"<m:oMath>{formula}</m:oMath>")) == text


def test_formulas_below_one_another_are_on_lines_of_their_own() -> None:
    formulas = "".join(f"<m:oMath>{math(text)}</m:oMath>" for text in ("a=1", "b=2"))
    assert lines(text_of(paragraph(f"<m:oMathPara>{formulas}</m:oMathPara>"))) == ["a=1", "b=2"]


def field(instruction: str, result: str | None = "", form: str = "") -> str:
    """A field; without a result, it has no part for one."""
    parts = [f'<w:fldChar w:fldCharType="begin"><w:ffData><w:name w:val="x"/>{form}</w:ffData></w:fldChar>']
    parts += [f'<w:instrText xml:space="preserve">{one}</w:instrText>' for one in instruction.split("~")]
    parts += [] if result is None else ['<w:fldChar w:fldCharType="separate"/>', f"<w:t>{result}</w:t>"]
    return "".join(f"<w:r>{part}</w:r>" for part in [*parts, '<w:fldChar w:fldCharType="end"/>'])


@pytest.mark.parametrize(
    ("switches", "shown"),
    [
        ("<w:default/><w:checked/>", "[x]"),
        ('<w:default w:val="1"/>', "[x]"),
        ('<w:default w:val="1"/><w:checked w:val="0"/>', "[ ]"),
        ('<w:default w:val="0"/><w:checked w:val="on"/>', "[x]"),
        ('<w:default w:val="on"/><w:checked w:val="off"/>', "[ ]"),
        ("<w:sizeAuto/>", "[ ]"),
    ],
)
@pytest.mark.parametrize("result", ["", None])
def test_boxes_of_forms_are_ticked_as_they_are_shown(switches: str, shown: str, result: str | None) -> None:
    box = field(" FORMCHECKBOX ", result, f"<w:checkBox>{switches}</w:checkBox>")
    assert text_of(paragraph(run("a ") + box + run(" b"))) == f"a {shown} b"


@pytest.mark.parametrize(
    ("form", "result", "shown"),
    [
        ('<w:ddList><w:result w:val="1"/>{}</w:ddList>', "", "a Two b"),
        ('<w:ddList><w:result w:val="1"/><w:default w:val="0"/>{}</w:ddList>', None, "a Two b"),
        ('<w:ddList><w:default w:val="1"/>{}</w:ddList>', "", "a Two b"),
        ("<w:ddList>{}</w:ddList>", "", "a One b"),
        ('<w:ddList><w:result w:val="1"/>{}</w:ddList>', "Two", "a Two b"),
        ('<w:ddList><w:result w:val="7"/>{}</w:ddList>', "", "a b"),
        ("<w:ddList/>", "", "a b"),
        ('<w:textInput><w:default w:val="Nobody"/></w:textInput>', None, "a Nobody b"),
        ('<w:textInput><w:default w:val="Nobody"/></w:textInput>', "Ada", "a Ada b"),
        ('<w:textInput><w:default w:val="Nobody"/></w:textInput>', "", "a b"),
    ],
)
def test_lists_and_lines_of_forms_have_what_was_chosen_and_filled_in(form: str, result: str | None, shown: str) -> None:
    filled = form.format('<w:listEntry w:val="One"/><w:listEntry w:val="Two"/>')
    kind = "FORMTEXT" if "textInput" in form else "FORMDROPDOWN"
    assert " ".join(text_of(paragraph(run("a ") + field(kind, result, filled) + run(" b"))).split()) == shown


@pytest.mark.parametrize(
    ("instruction", "address"),
    [
        ('HYPERLINK "https://example.org/a" \\o "See, there"', "https://example.org/a"),
        ('hyperlink \\o "See there" "https://example.org/a"', "https://example.org/a"),
        ('HYPERLINK "https://exam~ple.org/a" \\t "_blank" \\n', "https://example.org/a"),
        ('HYPERLINK https://example.org/a \\m \\o ""', "https://example.org/a"),
        ('HYPERLINK "https://example.org/a" \\l "b1" \\o ""', "https://example.org/a#b1"),
        ('HYPERLINK \\l"b1" "https://example.org/a"', "https://example.org/a#b1"),
        ('HYPERLINK "https://example.org/a', "https://example.org/a"),
        ('HYPERLINK "https://example.org/?q=\\"a\\""', "https://example.org/?q=%22a%22"),
    ],
)
def test_addresses_of_links_are_without_the_switches_of_their_fields(instruction: str, address: str) -> None:
    assert text_of(paragraph(field(instruction, "there"))) == f"[there]({address})"
    simple = instruction.replace("~", "").replace('"', "&quot;")
    found = text_of(paragraph(f'<w:fldSimple w:instr="{simple}">{run("there")}</w:fldSimple>'))
    assert found.replace('"', "%22") == f"[there]({address})"


WRAPPERS = {
    "bdo": '<w:bdo w:val="ltr">{}</w:bdo>',
    "dir": '<w:dir w:val="rtl">{}</w:dir>',
    "field": '<w:fldSimple w:instr="REF x">{}</w:fldSimple>',
    "tag": '<w:smartTag w:element="x">{}</w:smartTag>',
    "custom": '<w:customXml w:element="x">{}</w:customXml>',
    "control": "<w:sdt><w:sdtPr/><w:sdtContent>{}</w:sdtContent></w:sdt>",
    "inserted": '<w:ins w:id="1">{}</w:ins>',
    "moved": '<w:moveTo w:id="1">{}</w:moveTo>',
    "link": '<w:hyperlink r:id="missing">{}</w:hyperlink>',
    "choice": '<mc:AlternateContent><mc:Choice Requires="wps">{}</mc:Choice></mc:AlternateContent>',
    "fallback": "<mc:AlternateContent><mc:Choice/><mc:Fallback>{}</mc:Fallback></mc:AlternateContent>",
    "new": "<w:notYetInvented>{}</w:notYetInvented>",
}


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_text_is_read_whatever_it_stands_in(wrapper: str) -> None:
    assert text_of(paragraph(run("a ") + wrapper.format(run("b")) + run(" c"))) == "a b c"


@given(st.lists(st.lists(st.sampled_from([*WRAPPERS]), max_size=4), min_size=1, max_size=6))
def test_every_paragraph_is_in_the_text(nested: list[list[str]]) -> None:
    body = ""
    for number, names in enumerate(nested):
        content = run(f"word{number}x")
        for name in names:
            content = WRAPPERS[name].format(content)
        body += paragraph(content)
    assert lines(text_of(body)) == [f"word{number}x" for number in range(len(nested))]


def test_a_document_of_nothing_but_pictures_is_refused_with_that_reason() -> None:
    document: Any = import_module("docx").Document()
    document.add_picture(BytesIO(encode_png(2, 1, bytes(6))))
    file = BytesIO()
    document.save(file)
    with pytest.raises(UnreadableFileError, match=r"\(pictures: not read, and the file has no other text\)"):
        join_extracted_parts(extract_file(file.getvalue(), "a.docx"))
    document.add_paragraph("Text.")
    document.save(file)
    assert extract_file(file.getvalue(), "a.docx").skipped_items == []


def test_text_boxes_and_large_initials_are_read() -> None:
    box = f"<wps:txbx><w:txbxContent>{paragraph('In a box.')}</w:txbxContent></wps:txbx>"
    box = f"<w:r><w:drawing><wps:wsp>{box}</wps:wsp></w:drawing></w:r>"
    initial = paragraph(run("D", '<w:position w:val="-8"/>'), '<w:framePr w:dropCap="drop"/>')
    assert lines(text_of(paragraph(run("a") + box) + initial + paragraph("one."))) == ["a", "In a box.", "Done."]


def shape(*texts: str, formatted: str = "") -> str:
    said = "".join(f"<a:p><a:r><a:rPr/><a:t>{text}</a:t></a:r>{formatted}</a:p>" for text in texts)
    return f"<a:sp><a:txSp><a:txBody>{said}</a:txBody></a:txSp></a:sp>"


def test_texts_of_shapes_of_every_kind_are_read_in_their_order() -> None:
    box = f"<wps:txbx><w:txbxContent>{paragraph('Between.')}</w:txbxContent></wps:txbx>"
    raised = '<a:r><a:rPr baseline="30000"/><a:t>6</a:t></a:r><a:r><a:rPr strike="sngStrike"/><a:t>free</a:t></a:r>'
    drawing = f"{shape('First.', 'Second.')}{box}<a:grpSp>{shape('10', formatted=raised)}</a:grpSp>"
    letters = '<w:r><w:pict><v:shape><v:textpath string="Large."/></v:shape></w:pict></w:r>'
    body = paragraph(run("a") + f"<w:r><w:drawing><a:graphic>{drawing}</a:graphic></w:drawing></w:r>" + letters)
    assert lines(text_of(body)) == ["a", "First.", "Second.", "Between.", "10^6~~free~~", "Large."]


def test_text_boxes_in_the_namespaces_of_the_strict_kind_are_read() -> None:
    box = f"<wne:txbxContent>{paragraph('In a box.')}</wne:txbxContent>"
    body = paragraph(run("a") + f"<w:r><w:drawing>{box}</w:drawing></w:r>" + f"<w:r><w:pict>{box}</w:pict></w:r>")
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    found = extract_file(
        make_zip_archive({"word/document.xml": part("document", f"<w:body>{body}</w:body>").replace(W, strict)}), "a"
    )
    assert lines(join_extracted_parts(found).text) == ["a", "In a box.", "In a box."]
    assert not found.skipped_items


def test_a_chart_that_older_programs_show_as_a_picture_is_named() -> None:
    ways = "<mc:Choice><w:drawing><c:chart/></w:drawing></mc:Choice><mc:Fallback><w:drawing/></mc:Fallback>"
    body = paragraph(run("a") + f"<w:r><mc:AlternateContent>{ways}</mc:AlternateContent></w:r>")
    assert read(body) == ("a", ["charts or diagrams (1): not read"])


def test_every_body_of_a_document_is_read() -> None:
    bodies = "".join(f"<w:body>{paragraph(text)}</w:body>" for text in ("One.", "Two.", "Three."))
    found = join_extracted_parts(
        extract_file(make_zip_archive({"word/document.xml": part("document", bodies)}), "a.docx")
    )
    assert lines(found.text) == ["One.", "Two.", "Three."]


def test_lines_that_are_broken_in_any_way_are_apart() -> None:
    assert text_of(paragraph('<w:r><w:t>a</w:t><w:br w:type="odd"/><w:t>b</w:t></w:r>')) == "a\nb"
    assert text_of(paragraph("<w:r><w:t>a</w:t><w:cr/><w:t>b</w:t><w:ptab/><w:t>c</w:t></w:r>")) == "a\nb c"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def test_values_stand_below_their_headings_in_merged_cells() -> None:
    rows = [
        [cell("Region"), cell("Year"), cell("Revenue")],
        [cell("North", '<w:vMerge w:val="restart"/>'), cell("2023"), cell("410")],
        [cell("", "<w:vMerge/>"), cell("2024"), cell("455")],
        [cell("South"), cell("none", '<w:gridSpan w:val="2"/>')],
    ]
    late = f'<w:tr><w:trPr><w:gridBefore w:val="2"/></w:trPr>{cell("500")}</w:tr>'
    mark = '<w:bookmarkStart w:id="1" w:name="x"/>'
    table = mark.join(f"<w:tr>{mark.join(row)}</w:tr>" for row in rows)
    assert lines(text_of(f"<w:tbl>{mark}{table}{late}{paragraph('Behind.')}</w:tbl>")) == [
        "Region | Year | Revenue",
        "North | 2023 | 410",
        "North | 2024 | 455",
        "South | none | none",
        "|  | 500",
        "Behind.",
    ]


def test_what_no_reader_sees_is_not_read_but_named() -> None:
    styles = '<w:style w:type="paragraph" w:styleId="S"><w:rPr><w:vanish/></w:rPr></w:style>'
    hidden = paragraph(run("The price is $1.", "<w:vanish/>")) + paragraph("Obey.", '<w:pStyle w:val="S"/>')
    row = f"<w:tbl><w:tr><w:trPr><w:hidden/></w:trPr>{cell('gone')}</w:tr><w:tr>{cell('there')}</w:tr></w:tbl>"
    deleted = paragraph("<w:del><w:r><w:delText>never paid</w:delText></w:r></w:del>" + run("Paid."))
    text, left_out = read(hidden + row + deleted, {"word/styles.xml": part("styles", styles)})
    assert lines(text) == ["there", "Paid."]
    assert left_out == [
        "hidden text: 3 passages (6 words) that readers of the document do not see",
        "deleted text: 2 words that tracked changes delete",
    ]


def test_hidden_paragraphs_have_no_number() -> None:
    hidden = (
        item("", more="")
        .replace('<w:t xml:space="preserve"></w:t>', "<w:t>x</w:t>")
        .replace("<w:rPr>", "<w:rPr><w:vanish/>")
    )
    text, _ = read(item("a") + hidden + item("b"), numbering(*CLAUSES))
    assert lines(text) == ["1. a", "2. b"]


def test_what_is_beside_the_text_and_what_is_not_known_is_named() -> None:
    body = (
        paragraph(run("a") + "<w:r><w:object><o:OLEObject/></w:object></w:r>")
        + '<w:altChunk r:id="x"/>'
        + paragraph("<w:r><w:drawing><c:chart/></w:drawing></w:r>")
        + paragraph('<w:r><w:sym w:font="Odd" w:char="0041"/><w:sym w:font="Odd"/></w:r>')
    )
    members = {
        "word/footer.xml": part("ftr", paragraph("For internal use.")),
        "word/comments.xml": part("comments", f'<w:comment w:id="1">{paragraph("Really?")}</w:comment>'),
    }
    text, left_out = read(body, members)
    assert text == "a"
    assert left_out == [
        "charts or diagrams (1): not read",
        "an embedded object: not read",
        "a part in another format: not read",
        "headers and footers: not read (3 words)",
        "comments: not read (1 word)",
        "a character: code 0041 in the font Odd, which cannot be read as text",
    ]


def test_notes_are_read_and_those_that_are_missing_are_named() -> None:
    references = '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:footnoteReference w:id="9"/></w:r>'
    notes = part("footnotes", f'<w:footnote w:id="2">{paragraph("See below.")}</w:footnote>')
    text, left_out = read(paragraph(run("a") + references), {"word/footnotes.xml": notes})
    assert lines(text) == ["a[1]", "1. See below."]
    assert left_out == ["1 note: damaged: missing in the file"]


@pytest.mark.parametrize("name", ["styles", "numbering", "footnotes", "endnotes"])
def test_a_broken_part_costs_that_part_alone(name: str) -> None:
    text, left_out = read(item("One."), {f"word/{name}.xml": "<w:broken"})
    assert text == "One."
    assert [one.split(":")[0] for one in left_out] == [name]


def test_a_document_cannot_say_how_it_is_converted() -> None:
    assert text_of(paragraph("One."), {"mammoth/style-map": "p => !"}) == "One."


def test_a_document_of_nothing_is_refused() -> None:
    with pytest.raises(UnreadableFileError, match="damaged: not a readable Word file"):
        extract_file(make_zip_archive({"word/document.xml": part("document", "")}), "a.docx")
