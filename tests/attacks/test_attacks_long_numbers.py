"""Numbers of thousands of digits: `int` refuses more than 4,300 of them, and what raises where the words of others are
read is tried again for ever.
"""

from collections.abc import Callable
from itertools import product

import pytest

from tests.attacks.pump_runner import collect_patterns
from tests.attacks.pumps import matches_unbounded_numbers
from waystation.agents.deliverables import Finding, ReportDraft, ResearchFindings
from waystation.agents.tool_visibility import ParameterLimit
from waystation.cli.options import parse_amount
from waystation.context.restoration import has_file_changed
from waystation.documents.citations import CitedDocument, check_citations, parse_citations
from waystation.kernel.errors import BadInput
from waystation.plugins.offline import agent_request, plan, quotes, research, summary
from waystation.plugins.offline.agent_request import AgentRequestView, TaskBrief, ToolCallRecord
from waystation.plugins.redaction.credentials import find_private_keys
from waystation.plugins.request_files.request_body import parse_message_index
from waystation.reports.report import DraftUnderReview, find_faults

MANY = "1" * 5_000
CITED = f"It is so [a.md:{MANY}-{MANY}]."
READ_OTHERWISE = {
    "waystation.documents.citations.CITATION_PATTERN",
    "waystation.documents.table_engine.database._KINDS",
}
"""Their numbers are found however long they are: a citation of what is no line is told of, and DuckDB reads cells."""


def test_every_pattern_that_finds_a_number_finds_one_that_can_be_read() -> None:
    endless = [place for place, one in collect_patterns().items() if matches_unbounded_numbers(one.pattern, one.flags)]
    assert {place.partition(":")[0] for place in endless} == READ_OTHERWISE


@pytest.mark.parametrize(
    "source", [r"(\d+)", r"(?P<n>\d++)x", r"([\d,]+) tokens", r"((?:\d{3},)*)", r"a(?:(-?[0-9]+))?"]
)
def test_a_number_without_a_bound_is_seen(source: str) -> None:
    assert matches_unbounded_numbers(source, 0)


@pytest.mark.parametrize("source", [r"(\d{1,9})", r"\d+", r"(\w+)", r"(.+)", r"([0-9a-f]+)", r"(\d{3})+"])
def test_what_is_no_number_or_has_a_bound_is_let_pass(source: str) -> None:
    assert not matches_unbounded_numbers(source, 0)


@pytest.mark.parametrize(
    "lines", [f"{MANY}-1", f"1-{MANY}", f"{MANY}-{MANY}", "0-99999999999999999999", "1-" + "٣" * 5_000]
)
def test_a_citation_of_such_lines_is_found_and_does_not_hold(lines: str) -> None:
    (citation,) = parse_citations(f'They say "words that are long" [a.md:{lines}].')
    assert [*check_citations([citation], {"a.md": CitedDocument(["One line."])}).values()] == [
        "the document has 1 line"
    ]
    assert len(str(citation)) < 60


def test_a_report_that_has_some_is_reviewed() -> None:
    found = ResearchFindings(findings=(Finding(claim="So.", citations=(f"[a.md:{MANY}-1]",)),))
    drafted = DraftUnderReview(
        draft=ReportDraft(title="T", summary=CITED), requirements=(), findings=(found,), analysis=None
    )
    assert [fault.kind for fault in find_faults(drafted)] == ["unsupported"]


def offline(text: str) -> AgentRequestView:
    """A view in which everything says this."""
    names = ("delegate", "expand", "list_documents", "read_findings", "search_documents", "read_document", "read_notes")
    exchanges = tuple(
        ToolCallRecord(name=name, input={"id": "s1", "first": 0, "step": "s1"}, result=text) for name in names
    )
    return AgentRequestView(
        brief=TaskBrief(question="Why?", document_count=90), opening=text, exchanges=exchanges, max_tokens=9
    )


NUMBERS = "\n".join(
    [
        "Searched, lines {0}-{0} of {0}", "{0}| text", "- note [a.md:{0}-{0}] words", "{0}. [a.md:{0}-{0}] words",
        "findings 1-2 of {0} of step s1", "Step s1 has {0} findings; none", "{0}. open: nothing",
        'expand with id "s1" shows all of them', "continues at character {0}", "a.md ({0} lines, {0} characters)",
        "Between {0} and {0}, {0} to {0} tokens", "budget left {0} tokens", "budget for {0} new steps",
        "Keep to the documents {0} to {0} of the list.", "Private-Lines: {0}",
    ]
)  # fmt: skip
READERS: dict[str, Callable[[str], object]] = {
    "places": quotes.extract_citations,
    "hits": quotes.parse_search_hits,
    "lines": quotes.read_lines,
    "listed notes": lambda text: list(quotes.parse_note_list(text)),
    "summarised notes": lambda text: list(quotes.parse_summary_notes(text)),
    "notes of a submission": lambda text: list(quotes.parse_subagent_notes(text)),
    "research": lambda text: research.build_delegation_turn(offline(text)),
    "research that divides": lambda text: research.build_delegation_turn(
        offline(text).replace(tools=frozenset({"delegate", "list_documents"}))
    ),
    "plan": lambda text: plan.build_revision_turn(offline(text)),
    "summary": lambda text: summary.build_summary_response(text, 1_000),
    "contract": lambda text: agent_request.parse_task_brief(
        f'<documents count="{text}">\n{text}\n</documents>\n<context>\n{text}\n</context>\n'
    ),
    "place in a request": lambda text: parse_message_index(f"messages[{text}]"),
    "private keys": lambda text: list(find_private_keys(text)),
    "restoration": lambda text: has_file_changed(text, "other"),
}
ODD_NUMBERS = {"many": MANY, "comma": ",", "twenty": "1" * 20, "0": "0", "arabic": "٣" * 5_000}


def fault(read: Callable[[str], object], text: str) -> str:
    """What keeps the text from being read; `int` raises a ValueError."""
    try:
        read(text)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_who_reads_numbers_in_words_of_others_reads_any() -> None:
    texts = {
        f"{name}, {line}": line.format(number)
        for name, number in ODD_NUMBERS.items()
        for line in (NUMBERS, *NUMBERS.splitlines())
    }
    faults = {(reader, text): fault(READERS[reader], texts[text]) for reader, text in product(READERS, texts)}
    assert {place: said for place, said in faults.items() if said} == {}


def test_a_result_that_says_it_continues_where_it_began_is_read_once() -> None:
    delegated = ToolCallRecord(name="delegate", input={}, result='expand with id "s1" shows all of them')
    again = ToolCallRecord(name="expand", input={"id": "s1", "first": 0}, result="continues at character 0")
    looked = AgentRequestView(brief=TaskBrief(), exchanges=(delegated, again), max_tokens=9)
    assert research.build_delegation_turn(looked) is None


def test_an_amount_of_so_many_digits_is_refused() -> None:
    for amount in (MANY, f"${MANY}", f"{MANY}M", f"1.{MANY}k"):
        with pytest.raises(BadInput, match="is not an amount"):
            parse_amount(amount, "--budget")


def test_a_bound_of_a_foreign_tool_that_no_float_can_have_is_taken_as_it_is() -> None:
    huge = 10**400
    assert ParameterLimit(min=1).apply_to_schema({"minimum": huge})["minimum"] == huge
    assert ParameterLimit(max=1).apply_to_schema({"maximum": -huge})["maximum"] == -huge
