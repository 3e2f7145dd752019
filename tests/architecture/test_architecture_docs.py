"""Pages for people: the index lists all of them, and their words are plain."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)#\s]+)")
TARGET = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)"')
ELSEWHERE = ("https://", "http://", "mailto:")
NOT_IN_THE_INDEX = ("docs/index.md", "docs/design/")
"""The index itself, and the pages that the index of the design lists."""

PHRASES = {
    r"(?:is|are|was|were|be|been|being) told": "is notified, receives",
    r"tells? (?:of|what|which|who|when|how|whether)": "reports, shows",
    r"anew": "again",
    r"beside": "next to, besides",
    r"of before": "earlier",
    r"whoever": "anyone who",
    r"nobody": "no one",
    r"what there is": "what exists",
    r"so long": "while",
    r"hand(?:s|ed|ing)? (?:in|over|on)": "submit, pass",
    r"bills?|money": "cost, budget",
    r"with the words|as asked for|told and noted": "name the thing",
    r"(?:is|are|was|were) away": "cannot be reached, is down",
    r"at work": "running, working",
    r"side by side": "in parallel",
    r"paid (?:again|twice)": "paid for again, paid for twice",
    r"somebody": "someone, a person",
    r"goes nowhere|in vain": "is not sent, for ever",
    r"draws? on": "takes from",
    r"answered as": "treated as",
    r"a call that asks|asks? first": "needs an approval",
}
"""Phrases that a native engineer would not write here, and what to write."""
AVOIDED = {re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): better for phrase, better in PHRASES.items()}


def read_pages() -> Iterator[tuple[str, str]]:
    """Path and text of every page."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return ((page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")) for page in sorted(pages))


def test_the_index_lists_every_page_for_users() -> None:
    pages = dict(read_pages())
    listed = {f"docs/{path}" for path in LINK.findall(pages["docs/index.md"])}
    missing = [
        page
        for page in pages
        if page.startswith("docs/") and not page.startswith(NOT_IN_THE_INDEX) and page not in listed
    ]
    assert missing == []


def list_anchors(text: str) -> set[str]:
    """The headings of a page as GitHub makes anchors of them, and its own anchors."""
    headings = [CODE.sub(lambda span: span[0].strip("`"), heading) for heading in HEADING.findall(FENCED.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {
        *ANCHOR.findall(text)
    }


def test_links_between_pages_lead_to_a_file_and_a_heading() -> None:
    dead: list[str] = []
    for page, text in read_pages():
        for path, anchor in TARGET.findall(CODE.sub("", FENCED.sub("", text))):
            if path.startswith(ELSEWHERE):
                continue
            target = (ROOT / page).parent / path if path else ROOT / page
            if not target.exists() or (anchor and anchor not in list_anchors(target.read_text(encoding="utf-8"))):
                dead.append(f"{page}: {path}#{anchor}")
    assert dead == []


def find_phrases(text: str) -> list[str]:
    """Each phrase to avoid with what to write; code is left out."""
    prose = COMMENT.sub("", CODE.sub("", FENCED.sub("", text)))
    return [f"{found[0]!r}: {better}" for phrase, better in AVOIDED.items() for found in phrase.finditer(prose)]


def test_pages_are_written_in_plain_words() -> None:
    found = {page: phrases for page, text in read_pages() if (phrases := find_phrases(text))}
    assert found == {}
