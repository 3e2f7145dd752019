"""The sources of a report as BibTeX and RIS, read by other people's libraries."""

from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.export_report import STORED_REPORT, make_export_report
from waystation.documents.descriptions import DocumentDescription
from waystation.plugins.exports.bibliography import list_bibliography_entries, render_bibtex, render_ris
from waystation.reports.blocks import ExportedReport, NumberedSource, SourceMetadata
from waystation.reports.report import CitedSource, render_document_versions

RISPY: Any = import_module("rispy")
PYBTEX: Any = import_module("pybtex.database")
"""Neither has types."""
PAGE = "https://ok.example/?a=1&b={2}#part_%7E"
HOSTILE_TITLE = r"50 % of {braces} & $costs_#1 \input{/etc/passwd} ~^ “Häfen” }"
SOURCES = (
    CitedSource("survey.pdf", "a" * 64, DocumentDescription("Survey [of] `depths`", "2024-05-31"), version=2),
    CitedSource("docs/a/__init__.py", "b" * 64),
    CitedSource("港口.md", "d" * 64, DocumentDescription("Ports: a list", "1811-01-02"), file_name="[港口:1-2] (a).md"),
    CitedSource(PAGE, "c" * 64, DocumentDescription("Ships"), retrieved=datetime(2026, 11, 30, 1, tzinfo=UTC)),
)


def make_report() -> ExportedReport:
    cited = STORED_REPORT.replace("1811 | 12", f"1811 | 12 [{PAGE}:1-2]")
    return make_export_report(f"{cited}\n{render_document_versions(SOURCES)}\n")


def make_report_of(*sources: tuple[str, SourceMetadata]) -> ExportedReport:
    numbered = [
        NumberedSource(number=place, document=name, name=name, first_line=1, last_line=1, metadata=metadata)
        for place, (name, metadata) in enumerate(sources, 1)
    ]
    return make_report().replace(sources=tuple(numbered))


def parse_bibtex(report: ExportedReport) -> list[Any]:
    return [*PYBTEX.parse_string(render_bibtex(report), "bibtex").entries.values()]


def read_tex(value: str) -> str:
    """As LaTeX would print it."""
    words = {"backslash": "\\", "braceleft": "\0", "braceright": "\1", "asciitilde": "~", "asciicircum": "^"}
    for name, sign in words.items():
        value = value.replace(f"{{\\text{name}}}", sign)
    for sign in "#$%&_":
        value = value.replace(f"\\{sign}", sign)
    return value.replace("{", "").replace("}", "").replace("\0", "{").replace("\1", "}")


def test_what_the_appendix_says_of_a_source_is_read_back_from_the_stored_report() -> None:
    metadata = {one.document: one.metadata for one in make_report().sources}
    assert metadata["survey.pdf"] == SourceMetadata(title="Survey (of) 'depths'", date="2024-05-31", digest="a" * 16)
    assert metadata["docs/a/__init__.py"] == SourceMetadata(digest="b" * 16)
    assert metadata[PAGE] == SourceMetadata(title="Ships", retrieved="2026-11-30", digest="c" * 16)
    assert metadata["港口.md"] == SourceMetadata(title="Ports: a list", date="1811-01-02", digest="d" * 16)


def test_bibtex_has_one_entry_for_each_source_that_passed_the_check() -> None:
    entries = parse_bibtex(make_report())
    assert [one.key for one in entries] == [
        "docs-a-init-py",
        "docs-b-init-py",
        "survey-pdf",
        "md",
        "ok-example-a-1-b-2-part-7e",
    ]
    survey, page = entries[2], entries[4]
    assert read_tex(survey.fields["title"]) == "Survey (of) 'depths'"
    assert [survey.fields[name] for name in ("year", "month", "day")] == ["2024", "May", "31"]
    assert read_tex(survey.fields["note"]).startswith("Cited: page 2 of attachment a (1).pdf, lines 12–15.")
    assert f"The SHA-256 of the document's text begins with {'a' * 16}." in survey.fields["note"]
    assert (page.fields["url"], page.fields["urldate"]) == ("https://ok.example/?a=1&b=%7B2%7D#part_%7E", "2026-11-30")
    assert read_tex(entries[0].fields["title"]) == "docs/a/__init__.py"


def test_ris_has_the_same_entries() -> None:
    entries = RISPY.loads(render_ris(make_report()))
    assert [one["type_of_reference"] for one in entries] == ["GEN", "GEN", "GEN", "GEN", "ELEC"]
    survey, page = entries[2], entries[4]
    assert (survey["title"], survey["year"], survey["date"]) == ("Survey (of) 'depths'", "2024", "2024/05/31")
    assert survey["notes"][0] == "File: survey.pdf"
    assert (page["urls"], page["access_date"]) == ([PAGE], "2026/11/30")


UNPRINTABLE = dict.fromkeys([*range(32), 0x7F, 0x85, 0x2028, 0x2029], " ")
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5, unique_by=lambda one: one[0]))
def test_whatever_names_and_titles_contain_each_source_stays_one_entry_with_its_words(
    given_sources: list[tuple[str, str]],
) -> None:
    report = make_report_of(*((name, SourceMetadata(title=title)) for name, title in given_sources))
    entries = list_bibliography_entries(report)
    bibtex, ris = parse_bibtex(report), RISPY.loads(render_ris(report))
    assert [one.key for one in bibtex] == [one.key for one in entries]
    assert [one["id"] for one in ris] == [one.key for one in entries]
    for (name, title), of_bibtex, of_ris in zip(given_sources, bibtex, ris, strict=True):
        said = (title or name).translate(UNPRINTABLE).split()
        assert [read_tex(of_bibtex.fields["title"]).split(), of_ris["title"].split()] == [said, said]


def test_a_hostile_title_runs_no_command_of_tex() -> None:
    (entry,) = parse_bibtex(make_report_of(("a.md", SourceMetadata(title=HOSTILE_TITLE))))
    assert read_tex(entry.fields["title"]) == HOSTILE_TITLE
    assert r"\input" not in entry.fields["title"]
