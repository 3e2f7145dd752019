"""What changes the meaning of a slide is kept, and what is not text is named."""

from tests.documents.test_documents_zip_packages import extract_text, list_omissions, make_zip_archive, read_zip_members
from tests.support.document_files import make_slides_file
from waystation.documents.readers.formats import extract_file

A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
LINKS = "http://schemas.openxmlformats.org/package/2006/relationships"
FIRST = "ppt/slides/slide1.xml"


def slide(shapes: str, links: str = "", more: dict[str, str] | None = None) -> bytes:
    """Slides of which the first has these shapes, and nothing else."""
    found = read_zip_members(make_slides_file())
    found[FIRST] = (
        f'<p:sld xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{R}" xmlns:mc="{MC}" xmlns:m="{MATH}"><p:cSld><p:spTree>{shapes}'
        "</p:spTree></p:cSld></p:sld>"
    )
    found["ppt/slides/_rels/slide1.xml.rels"] = f'<Relationships xmlns="{LINKS}">{links}</Relationships>'
    return make_zip_archive({**found, **(more or {})})


def first(content: bytes) -> str:
    return extract_text(content, "a.pptx").partition("[slide 3]")[0].removeprefix("[slide 1]\n").strip()


def box(paragraphs: str, named: str = "", style: str = "") -> str:
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="B"{named}/></p:nvSpPr>'
        f"<p:txBody><a:lstStyle>{style}</a:lstStyle>{paragraphs}</p:txBody></p:sp>"
    )


def said(*runs: str) -> str:
    return f"<a:p>{''.join(runs)}</a:p>"


def run(text: str, look: str = "") -> str:
    return f"<a:r><a:rPr{look}/><a:t>{text}</a:t></a:r>"


UP, DOWN, STRUCK = ' baseline="30000"', ' baseline="-25000"', ' strike="sngStrike"'


def test_raised_lowered_and_struck_out_text_is_marked() -> None:
    runs = (
        *(run("At most 10"), run("6", UP), run(" rows; CO"), run("2", DOWN), run(" of x"), run("n+1", UP)),
        *(run("; the 4"), run("th", UP), run(" day. "), run("Cancellation ", STRUCK), run("is free. ", STRUCK)),
        *(run("Free"), run("3", ' baseline="0"')),
    )
    assert first(slide(box(said(*runs)))) == (
        "At most 10^6 rows; CO₂ of x^(n+1); the 4th day. ~~Cancellation is free.~~ Free3"
    )


def numbered(text: str, kind: str = "arabicPeriod", level: int = 0, start: str = "") -> str:
    return f'<a:p><a:pPr lvl="{level}"><a:buAutoNum type="{kind}"{start}/></a:pPr>{run(text)}</a:p>'


def test_items_have_the_numbers_that_the_slide_shows() -> None:
    items = (
        numbered("Back up.", start=' startAt="3"'),
        numbered("the data", "alphaLcParenR", 1),
        numbered("the keys", "alphaLcParenR", 1),
        numbered("Import.", start=' startAt="3"'),
        said(run("A remark.")),
        numbered("Check.", "romanUcPeriod"),
    )
    assert first(slide(box("".join(items)))) == (
        "3. Back up.\na) the data\nb) the keys\n4. Import.\n- A remark.\nI. Check."
    )


def test_numbers_of_a_level_come_from_the_style_of_its_shape() -> None:
    style = '<a:lvl1pPr><a:buAutoNum type="arabicParenBoth"/></a:lvl1pPr>'
    plain = f"<a:p><a:pPr><a:buNone/></a:pPr>{run('Plain.')}</a:p>"
    assert first(slide(box(said(run("One.")) + said(run("Two.")) + plain, style=style))) == (
        "(1) One.\n(2) Two.\n- Plain."
    )


def test_a_cell_over_several_rows_or_columns_is_repeated_in_each() -> None:
    def cell(text: str, attributes: str = "") -> str:
        return f"<a:tc{attributes}><a:txBody>{said(run(text))}</a:txBody></a:tc>"

    rows = (
        cell("Region") + cell("Revenue", ' gridSpan="2"') + cell("", ' hMerge="1"'),
        cell("North", ' rowSpan="2"') + cell("2023") + cell("410"),
        cell("", ' vMerge="1"') + cell("2024") + cell("455"),
    )
    table = f"<a:tbl>{''.join(f'<a:tr>{row}</a:tr>' for row in rows)}</a:tbl>"
    frame = f"<p:graphicFrame><a:graphic><a:graphicData>{table}</a:graphicData></a:graphic></p:graphicFrame>"
    assert first(slide(frame)) == "Region | Revenue | Revenue\nNorth | 2023 | 410\nNorth | 2024 | 455"


def test_a_formula_keeps_its_exponents_and_is_read_once() -> None:
    two, power = (f"<m:r><m:t>{text}</m:t></m:r>" for text in ("2", "53"))
    power = f"<m:oMath><m:sSup><m:e>{two}</m:e><m:sup>{power}</m:sup></m:sSup></m:oMath>"
    ways = f"<mc:Choice>{power}</mc:Choice><mc:Fallback>{run('2 to 53')}</mc:Fallback>"
    assert first(slide(box(said(run("At most "), f"<mc:AlternateContent>{ways}</mc:AlternateContent>")))) == (
        "At most 2^53"
    )


def test_formulas_below_one_another_are_on_lines_of_their_own() -> None:
    rows = "".join(f"<m:e><m:r><m:t>{text}</m:t></m:r></m:e>" for text in ("a=1", "b=2"))
    formulas = f"<m:oMath><m:eqArr>{rows}</m:eqArr></m:oMath><m:oMath><m:r><m:t>c=3</m:t></m:r></m:oMath>"
    assert first(slide(box(said(f"<m:oMathPara>{formulas}</m:oMathPara>")))) == "a=1; b=2\nc=3"


def test_the_texts_of_a_diagram_are_read() -> None:
    points = "".join(
        f'<pt type="{kind}"><t>{said(run(text))}</t></pt>'
        for kind, text in (("node", "Plan"), ("parTrans", "unseen"), ("node", "Build"), ("pres", "unseen"))
    )
    data = f'<dataModel xmlns:a="{A}"><ptLst>{points}</ptLst></dataModel>'
    frame = (
        '<p:graphicFrame><a:graphic><a:graphicData uri="http://schemas.openxmlformats.org/drawingml/2006/diagram">'
        '<d:relIds xmlns:d="urn:d" r:dm="d1"/></a:graphicData></a:graphic></p:graphicFrame>'
    )
    link = f'<Relationship Id="d1" Type="{R}/diagramData" Target="../diagrams/data1.xml"/>'
    assert first(slide(frame, link, {"ppt/diagrams/data1.xml": data})) == "- Plan\n- Build"
    assert "diagrams of slide 1: damaged, or of an unsupported kind" in list_omissions(
        extract_file(slide(frame + box(said(run("Text.")))), "a.pptx")
    )


def test_what_is_on_slides_and_not_text_is_named() -> None:
    def frame(uri: str) -> str:
        data = f'<a:graphicData uri="http://schemas.openxmlformats.org/{uri}"/>'
        return f"<p:graphicFrame><a:graphic>{data}</a:graphic></p:graphicFrame>"

    footer = box(said(run("Draft only"))).replace("</p:nvSpPr>", '<p:nvPr><p:ph type="ftr"/></p:nvPr></p:nvSpPr>')
    hidden = box(said(run("Old price 500")), ' hidden="1"')
    content = slide(
        box(said(run("Text."))) + frame("drawingml/2006/chart") + frame("presentationml/2006/ole") + footer + hidden,
        f'<Relationship Id="c" Type="{R}/comments" Target="../comments/c1.xml"/>',
        {"ppt/comments/c1.xml": f'<p:cmLst xmlns:p="{P}"><p:cm><p:text>Not agreed</p:text></p:cm></p:cmLst>'},
    )
    assert first(content) == "Text."
    assert list_omissions(extract_file(content, "a.pptx")) == [
        "slide 2: hidden; unhide the slide to include it",
        "charts of slide 1: not read",
        "embedded objects of slide 1: not read",
        "comments of slide 1: not read",
        "footers of slide 1: not read",
        "hidden text of slide 1: invisible to readers of the slides",
    ]


def test_slides_of_nothing_but_pictures_are_named() -> None:
    only, with_text = (slide(shapes + "<p:pic/>") for shapes in ("", box(said(run("Text.")))))
    assert "slide 1: no text, only pictures" in list_omissions(extract_file(only, "a.pptx"))
    assert "slide 1: no text, only pictures" not in list_omissions(extract_file(with_text, "a.pptx"))
