from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from waystation.cli.show import format_report_changes
from waystation.reports.changes import ReportChanges, compare_reports, render_report_changes
from waystation.reports.report import extract_answer, insert_after_title

BEFORE = """# Harbours

**Question.** What of the harbours?

- The harbour was dug in 1811 [harbour.md:1-1].
- The lamp is lit at dusk by the keeper [keeper.md:1-1].
- Fees are 12 crowns a ship [fees.md:4-4].
- Nobody says why.

## Sources

- harbour.md: line 1
"""
AFTER = """# Harbours

**Question.** What of the harbours?

- The harbour was dug in 1811 [harbour.md:7-7].
- Fees are 14 crowns a ship [fees.md:5-5].
- A second mole is planned for the north [harbour.md:9-9].
- Quoted above already: fees [fees.md:5-5].

## Sources

- harbour.md: lines 7, 9
"""


def texts(found: ReportChanges) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    return (
        [claim.text for claim in found.new],
        [claim.text for claim in found.gone],
        [(pair.before.text, pair.after.text) for pair in found.changed],
    )


def test_claims_are_new_gone_or_said_otherwise_and_lines_that_move_change_nothing() -> None:
    found = compare_reports(BEFORE, AFTER)
    assert texts(found) == (
        ["A second mole is planned for the north"],
        ["The lamp is lit at dusk by the keeper"],
        [("Fees are 12 crowns a ship", "Fees are 14 crowns a ship")],
    )
    assert found.same == 1


def test_the_same_words_of_another_document_are_a_change() -> None:
    (pair,) = compare_reports("It was dug in 1811 [a.md:1-1].", "It was dug in 1811 [b.md:1-1].").changed
    assert (str(pair.before.citations[0]), str(pair.after.citations[0])) == ("[a.md:1-1]", "[b.md:1-1]")


def test_changes_are_read_line_by_line() -> None:
    assert format_report_changes(compare_reports(BEFORE, AFTER)) == (
        "New (1)\n+ A second mole is planned for the north [harbour.md:9-9]\n\n"
        "Gone (1)\n- The lamp is lit at dusk by the keeper [keeper.md:1-1]\n\n"
        "Changed (1)\n- Fees are 12 crowns a ship [fees.md:4-4]\n+ Fees are 14 crowns a ship [fees.md:5-5]\n\n"
        "1 claim unchanged"
    )
    assert (
        format_report_changes(compare_reports(BEFORE, BEFORE)) == "3 claims unchanged; no claim is new, gone or changed"
    )


REPORTS = st.lists(
    st.tuples(st.sampled_from(["dug", "lit", "paid", "built"]), st.integers(1, 3), st.sampled_from(["a.md", "b.md"]))
).map(lambda said: "\n".join(f"- It was {verb} in {year} [{name}:1-1]." for verb, year, name in said))


@given(REPORTS)
def test_a_report_does_not_change_against_itself(report: str) -> None:
    assert compare_reports(report, report).is_empty


@given(REPORTS, REPORTS)
def test_every_claim_is_in_one_kind_alone_and_the_other_way_round_new_is_gone(before: str, after: str) -> None:
    there, back = compare_reports(before, after), compare_reports(after, before)
    old, new = set(before.splitlines()), set(after.splitlines())
    assert there.same + len(there.gone) + len(there.changed) == len(old)
    assert there.same + len(there.new) + len(there.changed) == len(new)
    assert (there.same, len(there.changed)) == (back.same, len(back.changed))


def test_a_report_that_opens_with_its_changes_says_them_before_its_question_and_claims_none_of_them() -> None:
    part = render_report_changes(compare_reports(BEFORE, AFTER), "task-1", "task-2")
    opened = insert_after_title(AFTER, part)
    assert part == snapshot(
        """\
> **What changed since last time** (`task-1`): 1 new claim, 1 gone, 1 changed, 1 unchanged.
>
> - New: A second mole is planned for the north [harbour.md:9-9]
>
> - Gone: The lamp is lit at dusk by the keeper [keeper.md:1-1]
>
> - Changed: Fees are 12 crowns a ship [fees.md:4-4] **is now** Fees are 14 crowns a ship [fees.md:5-5]\
"""
    )
    assert opened.index("# Harbours") < opened.index(part) < opened.index("**Question.**")
    assert extract_answer(opened) == extract_answer(AFTER)
    assert compare_reports(AFTER, opened).is_empty


def test_of_very_many_changes_a_report_opens_with_some_and_says_where_the_others_are() -> None:
    many = "# R\n\n" + "\n".join(f"- Ship {number} came in [log.md:{number}-{number}]." for number in range(1, 101))
    part = render_report_changes(compare_reports("# R\n", many), "task-1", "task-2")
    assert part.count("> - New: ") == 40
    assert part.endswith("> - and 60 more such claims (see `waystation diff task-1 task-2`)")
