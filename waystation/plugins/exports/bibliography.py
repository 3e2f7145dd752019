"""The sources of a report as BibTeX and as RIS: one entry for each cited document or web page.

Both formats are lines of names and values; a library for them would bring more than the two escapes that they need.
"""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded
from waystation.reports.blocks import ExportedReport, NumberedSource, SourceMetadata

_TEX = str.maketrans(
    {
        "\\": r"{\textbackslash}",
        "{": r"{\textbraceleft}",
        "}": r"{\textbraceright}",
        "~": r"{\textasciitilde}",
        "^": r"{\textasciicircum}",
        **{sign: f"\\{sign}" for sign in "#$%&_"},
    }
)
"""A brace is a command: BibTeX counts braces in a value, whether or not a backslash precedes them."""
_IN_ADDRESS = str.maketrans({sign: f"%{ord(sign):02X}" for sign in '\\{}^~ "<>'})
"""What an address in BibTeX, where it is read literally, cannot contain."""
_NOT_IN_KEY = compile_bounded(r"[^a-z0-9]+")
_UNPRINTABLE = compile_bounded(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
"""Ends a line in some program."""
_MAX_KEY_CHARACTERS = 40
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class BibliographyEntry(NamedTuple):
    """A cited document or web page."""

    key: str
    """Unique within the bibliography: letters, digits and hyphens."""
    name: str
    """Name of the document, or address of the page."""
    metadata: SourceMetadata
    places: Sequence[str]
    """Cited places, such as `page 2, lines 4–9`."""

    @property
    def is_web_page(self) -> bool:
        """Whether its name is an address."""
        return self.name.startswith(("http://", "https://"))

    @property
    def note(self) -> str:
        """The cited places, and the digest of the text."""
        cited = f"Cited: {'; '.join(self.places)}."
        digest = self.metadata.digest
        return f"{cited} The SHA-256 of the document's text begins with {digest}." if digest else cited


def list_bibliography_entries(report: ExportedReport) -> tuple[BibliographyEntry, ...]:
    """Return one entry for each source that passed the check, in the order of first citation."""
    cited: dict[str, list[NumberedSource]] = {}
    for source in report.sources:
        if not source.fault:
            cited.setdefault(source.document, []).append(source)
    keys = _make_keys([*cited])
    return tuple(
        BibliographyEntry(key, name, sources[0].metadata, [one.where for one in sources])
        for key, (name, sources) in zip(keys, cited.items(), strict=True)
    )


def render_bibtex(report: ExportedReport) -> str:
    """Render the sources as BibTeX in UTF-8, of the type `misc`, with the fields that BibLaTeX reads too."""
    return "\n".join(
        "\n".join([f"@misc{{{one.key},", *(f"  {name} = {value}," for name, value in _list_bibtex_fields(one)), "}\n"])
        for one in list_bibliography_entries(report)
    )


def render_ris(report: ExportedReport) -> str:
    """Render the sources as RIS in UTF-8, with the line ends that its specification asks for."""
    lines = [
        f"{tag}  - {_clean(value)}"
        for one in list_bibliography_entries(report)
        for tag, value in (*_list_ris_fields(one), ("ER", ""))
    ]
    return "".join(f"{line}\r\n" for line in lines)


def _list_bibtex_fields(one: BibliographyEntry) -> Iterator[tuple[str, str]]:
    # The second pair of braces keeps the capitals of the title.
    yield "title", f"{{{{{_clean(one.metadata.title or one.name).translate(_TEX)}}}}}"
    if one.is_web_page:
        yield "url", f"{{{_clean(one.name).translate(_IN_ADDRESS)}}}"
        if one.metadata.retrieved:
            yield "urldate", f"{{{one.metadata.retrieved}}}"
    else:
        yield "howpublished", f"{{{_clean(one.name).translate(_TEX)}}}"
    if one.metadata.date:
        day = date.fromisoformat(one.metadata.date)
        yield "year", f"{{{day.year}}}"
        yield "month", _MONTHS[day.month - 1]
        yield "day", f"{{{day.day}}}"
    yield "note", f"{{{_clean(one.note).translate(_TEX)}}}"


def _list_ris_fields(one: BibliographyEntry) -> Iterator[tuple[str, str]]:
    yield "TY", "ELEC" if one.is_web_page else "GEN"
    yield "ID", one.key
    yield "TI", one.metadata.title or one.name
    if one.metadata.date:
        yield "PY", one.metadata.date[:4]
        yield "DA", one.metadata.date.replace("-", "/")
    if one.is_web_page:
        yield "UR", one.name
        if one.metadata.retrieved:
            yield "Y2", one.metadata.retrieved.replace("-", "/")
    else:
        yield "N1", f"File: {one.name}"
    yield "N1", one.note


def _make_keys(names: Sequence[str]) -> list[str]:
    """Make a key of each name; a number is added to one that another name has too."""
    keys: list[str] = []
    for name in names:
        plain = _NOT_IN_KEY.sub("-", name.lower().partition("://")[2] or name.lower()).strip("-")
        base = plain[-_MAX_KEY_CHARACTERS:].strip("-") or "source"
        key, number = base, 2
        while key in keys:
            key, number = f"{base}-{number}", number + 1
        keys.append(key)
    return keys


def _clean(value: str) -> str:
    """Return the value on one line."""
    return _UNPRINTABLE.sub(" ", value).strip()
