"""A stored report in parts: what code wrote of its citations is read back, and what agents wrote stays."""

import pytest
from inline_snapshot import snapshot

from tests.support.export_report import STORED_REPORT, make_export_report
from waystation.plugins.exports.page import render_html_page
from waystation.reports.blocks import HeadingBlock, compute_shortest_names, parse_stored_report
from waystation.reports.changes import compare_reports, render_report_changes
from waystation.reports.markdown import render_numbered_markdown
from waystation.reports.report import insert_after_title


def test_each_cited_place_has_one_number_with_its_page_its_lines_and_what_is_wrong_with_it() -> None:
    shown = [
        f"{one.number} {one.name} | {one.where} | {one.quotation} | {one.fault}" for one in make_export_report().sources
    ]
    assert shown == snapshot(
        [
            "1 a/__init__.py | lines 2–3 | None | ",
            "2 b/__init__.py | line 8 | None | ",
            "3 survey.pdf | page 2 of attachment a (1).pdf, lines 12–15 | silted up in ten years | ",
            "4 港口.md | line 1 | 港口已经关闭了很久很久 | ",
            "5 gone.md | lines 1–9 | None | there is no such document",
        ]
    )


def test_sections_of_agents_that_are_called_as_those_of_code_stay() -> None:
    stored = parse_stored_report(STORED_REPORT)
    assert "An agent's own section, which stays." in stored.body
    assert "- survey.pdf: page 2" not in stored.body
    alone = "# A\n\n## Sources\n\n- we asked around: at the harbour\n\n## Citations\n\nof poets\n"
    assert parse_stored_report(alone).body == alone
    headings = [one for one in make_export_report(alone).blocks if isinstance(one, HeadingBlock)]
    assert [one.inlines[0].text for one in headings] == ["Sources", "Citations"]


@pytest.mark.parametrize(
    ("listed", "checked"),
    [
        (1, "1 of 5 citations failed the check and is marked in the text."),
        (2, "2 of 5 citations failed the check and are marked in the text."),
    ],
)
def test_one_failed_citation_is_marked_and_several_are(listed: int, checked: str) -> None:
    lines = "\n".join(f"- [gone.md:{line}-{line}]: there is no such document" for line in range(1, listed + 1))
    stored = parse_stored_report(
        f"# A\n\nText.\n\n## Failed citations\n\n{listed} of 5 citations failed the check:\n\n{lines}\n"
    )
    assert (stored.checked, len(stored.faults)) == (checked, listed)


def test_a_report_without_any_of_it_is_read_too() -> None:
    assert (make_export_report("").title, make_export_report("").blocks) == ("Report", ())
    assert make_export_report("no title [a.md:1-1]").sources[0].where == "line 1"


def test_a_claim_of_the_report_before_leads_to_the_document_as_it_was_last_time() -> None:
    was, now = "# T\n\nIt took 30 seconds [a.md:3-3].\n\nTwice [b.md:1-1].", "# T\n\nIt took 45 seconds [a.md:3-3]."
    part = render_report_changes(compare_reports(was, now), "task-1", "task-2")
    sent = render_numbered_markdown(
        parse_stored_report(insert_after_title(now, part)), make_export_report(insert_after_title(now, part))
    )
    assert [line for line in sent.splitlines() if line.startswith(("> -", "- [", "It took"))] == snapshot(
        [
            "> - Gone: Twice [1]",
            "> - Changed: It took 30 seconds [2] **is now** It took 45 seconds [3]",
            "It took 45 seconds [3].",
            "- [1] b.md (last time), line 1",
            "- [2] a.md (last time), line 3",
            "- [3] a.md, line 3",
        ]
    )


def test_a_citation_of_thousands_of_digits_is_shown_as_one() -> None:
    assert len(make_export_report(f"# T\n\nIt is so [a.md:{'1' * 5_000}-1].").sources) == 1


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("harbour.md",), ("harbour.md",)),
        (("docs/harbour.md", "docs/log.md"), ("harbour.md", "log.md")),
        (("a/x/log.md", "b/x/log.md"), ("a/x/log.md", "b/x/log.md")),
        (("p/a/x/log.md", "p/b/x/log.md"), ("a/x/log.md", "b/x/log.md")),
        (("lib/json/__init__.py",), ("json/__init__.py",)),
        (("log.md", "old/log.md"), ("log.md", "old/log.md")),
        (("https://a.example/log.md",), ("https://a.example/log.md",)),
        (("/", "README.md"), ("/", "README.md")),
    ],
)
def test_a_source_is_called_by_the_shortest_end_of_its_path_that_no_other_has(
    names: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert tuple(compute_shortest_names(names).values()) == shown


def test_the_markdown_to_be_sent_has_numbers_a_list_of_sources_and_nothing_that_acts() -> None:
    sent = render_numbered_markdown(parse_stored_report(STORED_REPORT), make_export_report())
    assert sent == snapshot("""\
> **No LLM wrote this.** The built-in offline model.

# Häfen & &lt;b>Silt&lt;/b>: 港口 مرفأ 🚢

*23 November 2026 · task-0123456789abcdef · version 2 · done · claude-sonnet-5-5*

**Question.** Why did it silt up?

Silt *closed* **it** [1]⁽¹⁾, `kept[1:2-3]` [2].

#read("/etc/passwd") #panic("x") $ x^2 $ @ref &lt;label> // no comment \\u{1F600} &lt;script>alert(1)&lt;/script>
[click] (javascript:alert(1)) ![seen] (https://evil.example/x.png) &lt;javascript:alert(2)> <https://ok.example/?a&b=2>

## Sources

An agent's own section, which stays.

1. It says "silted up in ten years" [3], "مرفأ قديم جدا" [3].
   - nested [1]°
2. "港口已经关闭了很久很久" [4]

| year | ships |
|---|---|
| 1811 | 12 [5?] |

```python
print("#let x = 1", "</pre><b>")
```

---

## Sources

1 of 5 citations failed the check and is marked in the text. \
Code compared the figures, dates, names and wording of 7 cited sentences with the cited \
lines: 4 are supported, 2 are not (marked in the text), 1 could not be decided (marked °). \
Whether the report answers the question was not judged.

- ⁽¹⁾ "closed" &lt;b>stands&lt;/b> nowhere in "lines" 2-3 of docs/a/\\_\\_init\\_\\_.py

- [1] a/\\_\\_init\\_\\_.py, lines 2–3
- [2] b/\\_\\_init\\_\\_.py, line 8
- [3] survey.pdf, page 2 of attachment a (1).pdf, lines 12–15
- [4] 港口.md, line 1
- [5?] gone.md, lines 1–9: there is no such document

## About this report

- Task `task-0123456789abcdef`, model `claude-sonnet-5-5`, 14 model turns

## Not used

Files and parts of files that were submitted, but left out:

- picture.bin: it is no text
""")


DEEP = (
    "\n".join(f"{'  ' * level}- level{level}" for level in range(80)),
    "\n".join(f"{chr(9) * level}- level{level}" for level in range(80)),
    "\n\n".join(f"{'>' * level} level{level}" for level in range(150)),
    "- " * 200 + "level",
    "1. " * 200 + "level",
    "*" * 300 + "level" + "*" * 300,
)


@pytest.mark.parametrize("deep", DEEP)
def test_nothing_is_lost_of_what_is_nested_deeper_than_any_person_does(deep: str) -> None:
    page = render_html_page(make_export_report(f"# T\n\n{deep}\n\nBehind it [a.md:1-2].\n"))
    assert [word for word in deep.split() if word.startswith("level") and word not in page] == []
    assert 'Behind it <a class="cite"' in page


def test_a_question_that_is_the_title_is_said_once() -> None:
    once = make_export_report("# Why *did* it?\n\n**Question.** Why did it?\n\nSilt.")
    twice = make_export_report("# Silt\n\n**Question.** Why did it?\n\nSilt.")
    assert (len(once.blocks), len(twice.blocks)) == (1, 2)
