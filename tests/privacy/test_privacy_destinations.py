"""docs/reference/redaction.md agrees with `get_redaction_level`, and the code uses each place that is redacted."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from waystation.privacy.policy import RedactionLevel, RedactionPolicy, TextDestination, get_redaction_level

ROOT = Path(__file__).parents[2]
WORDS = {
    RedactionLevel.ORIGINAL: "nothing",
    RedactionLevel.SECRETS: "secrets",
    RedactionLevel.IDENTIFIERS: "secrets, identifiers",
    RedactionLevel.NAMES: "secrets, identifiers, names",
    RedactionLevel.NO_TEXT: "no text",
}
UNTOUCHED = {RedactionLevel.ORIGINAL, RedactionLevel.NO_TEXT}


def rows() -> Iterator[list[str]]:
    section = (
        (ROOT / "docs/reference/redaction.md").read_text(encoding="utf-8").split("\n## Where\n")[1].split("\n## ")[0]
    )
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "place":
            yield cells


def test_every_place_has_one_row_and_every_row_a_place() -> None:
    assert [row[0] for row in rows()] == [str(place) for place in TextDestination]


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[0])
def test_a_row_says_what_is_replaced_there_and_who_can_read_it_how_long(row: list[str]) -> None:
    _, standard, strict, secrets_only, *rest = row
    said = {
        RedactionPolicy.STANDARD: standard,
        RedactionPolicy.STRICT: strict,
        RedactionPolicy.SECRETS_ONLY: secrets_only,
    }
    assert said == {policy: WORDS[get_redaction_level(TextDestination(row[0]), policy)] for policy in RedactionPolicy}
    assert len(rest) == 3
    assert all(rest)


def test_every_place_that_is_redacted_is_asked_for_somewhere_and_no_other_is() -> None:
    folders = ("agents", "planning", "memory", "documents", "tasks", "reports", "cli", "plugins/request_files")
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in _modules(folder)]
    sources += [path.read_text(encoding="utf-8") for path in (ROOT / "activities").glob("*.py")]
    asked = {
        TextDestination[name] for source in sources for name in re.findall(r"\bTextDestination\.([A-Z_]+)\b", source)
    }
    assert asked == {
        place for place in TextDestination if get_redaction_level(place, RedactionPolicy.STANDARD) not in UNTOUCHED
    }


def _modules(folder: str) -> Iterator[Path]:
    return (ROOT / "waystation" / folder).rglob("*.py")


@pytest.mark.parametrize("destination", TextDestination)
def test_strict_replaces_no_less_than_standard_and_secrets_only_no_more(destination: TextDestination) -> None:
    least, standard, most = (
        get_redaction_level(destination, policy)
        for policy in (RedactionPolicy.SECRETS_ONLY, RedactionPolicy.STANDARD, RedactionPolicy.STRICT)
    )
    assert least <= standard <= most
