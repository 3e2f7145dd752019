"""Title and date that a document states in its own text: front matter, e-mail headers, first heading, a dated line."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import NamedTuple

from waystation.documents.documents import parse_place_marker
from waystation.kernel.patterns import compile_bounded

MAX_TITLE_CHARACTERS = 200
MAX_HEAD_LINES = 100
"""Maximum lines in which a title is looked for."""
MAX_HEAD_CHARACTERS = 50_000
"""Maximum characters that those lines can have: of each, 500 are looked at."""
_MAX_DATED_LINES = 20
"""Maximum lines in which a date is looked for: further down, dates are mostly of something else."""
_MAX_LINE_CHARACTERS = 500
_FIELD = compile_bounded(r"\A(?P<name>[A-Za-z][A-Za-z _-]{0,30}+)[ \t]{0,4}+:[ \t]{1,4}+(?P<value>\S.*)\Z")
_HEADING = compile_bounded(r"\A#{1,6} +(?=\S)")
_MARKS = "*_`#> "
_DATE_NAMES = frozenset(
    {"date", "dated", "updated", "last updated", "last modified", "modified", "published", "publication date"}
)
_ISO_DAY = compile_bounded(r"\A\d{4}-\d{2}-\d{2}(?!\d)")
_ISO_DIGITS = 10
_FORMS = ("%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%d.%m.%Y", "%Y/%m/%d")
"""Forms of a day besides ISO 8601 that can be read in one way only."""
_FENCE = "---"


class DocumentDescription(NamedTuple):
    """What a document says about itself; empty where it says nothing."""

    title: str = ""
    date: str = ""
    """Day in ISO 8601, such as `2024-05-31`."""


def describe_document(lines: Sequence[str]) -> DocumentDescription:
    """Find the title and the date in the first lines of a document."""
    head = [line[:_MAX_LINE_CHARACTERS] for line in islice(lines, MAX_HEAD_LINES) if parse_place_marker(line) is None]
    fields = _list_front_matter(head) or _list_mail_headers(head)
    title = fields.get("title") or fields.get("subject") or _find_heading(head)
    dates = (fields[name] for name in fields if name in _DATE_NAMES)
    day = next((day for one in dates if (day := parse_day(one))), "") or _find_dated_line(head[:_MAX_DATED_LINES])
    return DocumentDescription(_clean(title)[:MAX_TITLE_CHARACTERS], day)


def parse_day(written: str) -> str:
    """Return the day in ISO 8601; empty if it is none, or can be read in several ways."""
    text = written.strip(" \t\"'*_.")
    found = _ISO_DAY.match(text)
    with suppress(ValueError):
        if found is not None:
            return date.fromisoformat(text[:_ISO_DIGITS]).isoformat()
    for form in _FORMS:
        with suppress(ValueError):
            return datetime.strptime(text, form).date().isoformat()  # noqa: DTZ007  a day has no zone
    with suppress(ValueError, TypeError, IndexError):
        return parsedate_to_datetime(text).date().isoformat()
    return ""


def _list_front_matter(head: Sequence[str]) -> dict[str, str]:
    """Return the fields between two `---` at the beginning of a Markdown file; none if there is no such part."""
    if not head or head[0].rstrip() != _FENCE:
        return {}
    end = next((place for place, line in enumerate(head) if place and line.rstrip() == _FENCE), 0)
    return _parse_fields(head[1:end])


def _list_mail_headers(head: Sequence[str]) -> dict[str, str]:
    """Return the headers of an e-mail as its reader writes them; none of another text."""
    end = next((place for place, line in enumerate(head) if not line.strip()), len(head))
    fields = _parse_fields(head[:end])
    return fields if "from" in fields and {"subject", "date"} & fields.keys() else {}


def _parse_fields(lines: Iterable[str]) -> dict[str, str]:
    found = filter(None, map(_FIELD.match, lines))
    return {field["name"].strip().lower(): field["value"].strip(" \t\"'") for field in found}


def _find_heading(head: Iterable[str]) -> str:
    return next((line[match.end() :] for line in head if (match := _HEADING.match(line))), "")


def _find_dated_line(head: Iterable[str]) -> str:
    """Return the first day after a word such as `Date:`, which may be emphasised."""
    plain = (line.replace("*", "").replace("_", " ").lstrip("#>-• \t") for line in head)
    fields = ([(name, value)] for line in plain for name, value in _parse_fields([line]).items())
    dated = (parse_day(value) for ((name, value),) in fields if name in _DATE_NAMES)
    return next(filter(None, dated), "")


def _clean(title: str) -> str:
    return " ".join(title.split()).strip(_MARKS)
