"""Whole reports of the offline model over documents that are read at a glance."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.plugins.offline.plan_runner import InMemoryTask, OfflinePlanRunner
from waystation.agents.citation_feedback import render_cited_sentences
from waystation.documents.citations import CitedDocument, check_citations, parse_citations
from waystation.documents.cited_sentences import check_cited_sentences
from waystation.documents.support_verdicts import SupportVerdict
from waystation.models.ports import ChatModel
from waystation.planning.plan import Plan, Step
from waystation.plugins.offline.chat_model import create_offline_model
from waystation.plugins.offline.plan import NOTHING_ANSWERS
from waystation.plugins.offline.report import NOTHING_CLOSE

HARBOURS = Path(__file__).parents[3] / "examples" / "harbours"


def list_sentence_verdicts(team: OfflinePlanRunner, markdown: str) -> set[SupportVerdict]:
    documents = {name: CitedDocument(text.splitlines()) for name, text in team.world.texts.items()}
    faults = check_citations(parse_citations(markdown), documents)
    return {one.verdict for one in check_cited_sentences(markdown, faults, documents)}


LEASE = {
    "lease.md": "# Lease\n\nThe rent is 900 euros a month. It is due in May.\n\nPets are not allowed in the house.",
}
ANNEX = {
    "annex.md": "The rent rises by 3 percent each January.\n\nWithout consent, subletting is not allowed.",
    "rules.md": "Quiet hours are at night.\n\nPets are not allowed in the house.",
}


def written(team: OfflinePlanRunner) -> str:
    report = team.world.report
    return "\n\n".join([report.summary, *(f"## {one.heading}\n\n{one.markdown}" for one in report.sections)])


@pytest.fixture
async def model() -> AsyncIterator[ChatModel]:
    made = create_offline_model()
    yield made
    await made.aclose()


async def test_a_report_over_a_short_document_says_everything_once(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(LEASE))
    await team.run_task("What is the rent, and what is not allowed?")
    assert team.world.find_misquotations() == []
    assert written(team) == snapshot("""\
In the sections below: 2 quotations from 1 document.

## What is the rent

- **lease**: "The rent is 900 euros a month." [lease.md:3-3]

## What is not allowed

- **lease**: "Pets are not allowed in the house." [lease.md:5-5]\
""")


async def test_documents_that_say_the_same_are_named_together(
    model: ChatModel,
) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(LEASE | ANNEX))
    await team.run_task("What is the rent, and what is not allowed?")
    assert team.world.find_misquotations() == []
    assert written(team) == snapshot("""\
In the sections below: 5 quotations from 3 documents.

## What is the rent

- **annex**: "The rent rises by 3 percent each January." [annex.md:1-1]
- **lease**: "The rent is 900 euros a month." [lease.md:3-3]

**Open**

- This step quotes 2 of 3 documents; rules was not read, or had no matching passage.

## What is not allowed

- "Pets are not allowed in the house.": lease [lease.md:5-5], rules [rules.md:3-3]
- **annex**: "Without consent, subletting is not allowed." [annex.md:3-3]\
""")


async def test_a_section_points_at_what_an_earlier_one_quotes(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(LEASE))
    await team.run_task("Which pets are allowed in the house?")
    assert written(team) == snapshot("""\
In the sections below: 1 quotation from 1 document.

## Direct evidence

- **lease**: "Pets are not allowed in the house." [lease.md:5-5]

## Exceptions, limits and gaps

- Quoted above already: lease [lease.md:5-5]\
""")


FILINGS = {
    "EBAY_2022_10K.pdf": "[page 1]\nStatement of Income\nYear Ended December 31,\n2022 2021\n"
    "Net revenues $ 9,795 $ 10,420\nCost of net revenues 2,680 2,650\n14\n",
    "AMAZON_2022_10K.pdf": "Net revenues of 2022 were $513,983 million. However, revenue is unknown in 2022.",
    "BESTBUY_2022_10K.pdf": "Revenue of fiscal 2022 was $51,761 million, and revenue 2022 is up 9 percent.",
}


@pytest.mark.parametrize(
    ("question", "first"),
    [
        (
            "What was eBay's revenue in 2022?",
            '- **EBAY_2022_10K**: 2022 | 2021: "Net revenues $ 9,795 $ 10,420" [EBAY_2022_10K.pdf:5-5]',
        ),
        (
            "What was the revenue of Best Buy in 2022?",
            '- **BESTBUY_2022_10K**: "Revenue of fiscal 2022 was $51,761 million',
        ),
    ],
)
async def test_a_name_that_is_a_files_name_says_where_to_look(model: ChatModel, question: str, first: str) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(FILINGS))
    await team.run_task(question)
    lines = team.world.report.sections[0].markdown.splitlines()
    assert lines[0].startswith(first)
    assert not [line for line in lines if "AMAZON" in line and line.startswith("- **")]
    assert team.world.find_misquotations() == []


async def test_several_places_of_a_named_document_are_read(model: ChatModel) -> None:
    text = "\n\n".join(
        ["Revenue, revenue and revenue are told of below."]
        + [f"Paragraph {number} tells a long story about the weather." for number in range(60)]
        + ["Net revenues 9,795 10,420"]
    )
    team = OfflinePlanRunner(
        model, InMemoryTask({"EBAY_2022.txt": text, "OTHER_2022.txt": "Revenue is told of.", "third.txt": "Nothing."})
    )
    await team.run_task("What was the revenue of eBay?")
    assert '"Net revenues 9,795 10,420"' in team.world.report.sections[0].markdown


STATEMENTS = {
    f"{name}_2020_10K.pdf": f"[page 1]\n{name.title()} Statement of Income\n(in millions)\n2020 2019\n"
    f"Cost of revenue {first} 30\nNet income attributable to shareholders {first} 30\n"
    f"Purchases of equipment {first} 30\n"
    for name, first in (("ALPHA", "100"), ("BETA", "200"), ("GAMMA", "300"))
}


@pytest.mark.parametrize(
    ("question", "first"),
    [
        (
            "Assume that you are an analyst. By drawing conclusions from the information in the statement of income, "
            "what is Beta's FY2020 net income attributable to shareholders (in USD millions)? Round to two decimals.",
            '"Net income attributable to shareholders 200 30"',
        ),
        (
            "What is the FY2020 capital expenditure amount for Beta? Give a response by relying on the statement.",
            '"Purchases of equipment 200 30"',
        ),
        ("What was the COGS of Beta?", '"Cost of revenue 200 30"'),
    ],
)
async def test_what_says_how_to_answer_is_not_looked_for(model: ChatModel, question: str, first: str) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(STATEMENTS))
    plan = await team.run_task(question)
    assert [step.role for step in plan.steps] == ["research", "analysis", "writing"]
    lines = team.world.report.sections[0].markdown.splitlines()
    assert lines[0] == f"- **BETA_2020_10K**: 2020 | 2019: {first} [BETA_2020_10K.pdf:{lines[0].split(':')[-1]}"
    assert NOTHING_CLOSE not in team.world.report.summary


async def test_a_named_document_is_searched_by_itself(model: ChatModel) -> None:
    paragraph = "The net income of Beta attributable to shareholders is of interest to all who own its shares. " * 9
    others = {f"OTHER{at}_2020.txt": "\n\n".join([paragraph] * 20) for at in range(8)}
    own = "\n\n".join(["It sails round the world."] * 60 + ["Net income 3,033 10,073", "It sails on."])
    team = OfflinePlanRunner(model, InMemoryTask(others | {"BETA_2020.txt": own}))
    await team.run_task("What was the net income of Beta attributable to shareholders?")
    assert '"Net income 3,033 10,073"' in team.world.report.sections[0].markdown.splitlines()[0]


@pytest.mark.parametrize("table", ["Consolidated statements (millions)\nRevenue 3,033 73", "Total revenue 3,033 73"])
async def test_where_a_figure_is_asked_for_tables_are_searched_for(model: ChatModel, table: str) -> None:
    talk = "\n\n".join(f"Revenue of the {at}th kind is revenue, and revenue it stays." for at in range(400))
    texts = {"BETA_2020.txt": f"{talk}\n\n{'It sails on. ' * 80}\n\n{table}", "a.txt": "Sea.", "b.txt": "Sea."}
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task("What was the revenue of Beta?")
    assert "3,033 73" in team.world.report.sections[0].markdown.splitlines()[0]


async def test_the_row_of_the_whole_comes_before_shares_and_parts_and_a_heading_with_the_year_is_none(
    model: ChatModel,
) -> None:
    table = "Years ended December 31\nCost of sales 14% 23% 27%\nCost of sales — 52 93\nCost of sales 71,651 88,265 9"
    team = OfflinePlanRunner(model, InMemoryTask({"BETA.txt": table, "other.txt": "Nothing.", "third.txt": "Nothing."}))
    await team.run_task("What was the cost of sales of Beta in the year that ended in December?")
    report = team.world.report.sections[0].markdown
    assert report.startswith('- **BETA**: "Cost of sales 71,651 88,265 9"')
    assert "Years ended" not in report


@pytest.mark.parametrize(
    ("question", "said"),
    [("What was the net income of Tesla?", True), ("What was the net income of Beta (once Tesla)?", False)],
)
async def test_a_name_that_no_quotation_says_is_named_first(model: ChatModel, question: str, *, said: bool) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(STATEMENTS))
    await team.run_task(question)
    assert (
        team.world.report.summary.startswith(
            "No quotation contains Tesla: check that the quotations are about what you asked.\n"
        )
        is said
    )


async def test_that_somebody_owns_something_answers_no_question_for_somebody(model: ChatModel) -> None:
    team = OfflinePlanRunner(
        model, InMemoryTask({"rights.md": "An owner is who has the key.\n\nAuthors are named in the list."})
    )
    await team.run_task("Who won the regatta?")
    assert team.world.report.summary == NOTHING_ANSWERS


async def test_exceptions_are_of_what_was_asked_and_come_after_what_answers(model: ChatModel) -> None:
    texts = {
        "lease.md": "Pets are allowed in the house.\n\nHowever, pets are not allowed in the house at night.",
        "law.md": "However, it remains unclear what limits apply to mergers, and exceptions are unknown.",
        "sea.md": "However, the limits of the sea are unknown, with exceptions and gaps.",
    }
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task("Which pets are allowed in the house?")
    report = written(team)
    assert "mergers" not in report
    assert "the sea" not in report
    assert "However" not in team.world.report.summary
    assert '"However, pets are not allowed in the house at night."' in report


async def test_where_nothing_answers_the_question_the_report_says_so(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(LEASE))
    await team.run_task("Who won the regatta?")
    assert team.world.report.summary == NOTHING_ANSWERS


async def test_quotations_with_few_of_the_words_are_called_so(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(LEASE))
    await team.run_task("Which regatta crews sailed round the old house?")
    assert team.world.report.summary.startswith(NOTHING_CLOSE)
    await (answered := OfflinePlanRunner(model, InMemoryTask(LEASE))).run_task("Which pets are allowed in the house?")
    assert NOTHING_CLOSE not in answered.world.report.summary


async def test_json_is_quoted_member_by_member(model: ChatModel) -> None:
    for text in (
        '{\n  "name": "Lease",\n  "rent_per_month": 900,\n  "pets": "No pets."\n}',
        '{"name": "x", "rent_per_month": 900}',
    ):
        team = OfflinePlanRunner(model, InMemoryTask({"lease.json": text}))
        await team.run_task("How high is the rent?")
        line = team.world.report.sections[0].markdown.splitlines()[0]
        assert line.startswith('- **lease**: rent_per_month: "900" [lease.json:')
        assert team.world.find_misquotations() == []


def package(name: str, licence: str, before: int = 0) -> dict[str, str]:
    """`before`: lines before the licence."""
    filler = "\n".join(f"Requires-Dist: other{number}" for number in range(before))
    return {f"{name}.md": f"Name: {name}\n{filler}\n{licence}\n\nIt is small and does its work."}


@pytest.mark.parametrize(
    ("texts", "question"),
    [
        (LEASE | ANNEX, "What is the rent, and what is not allowed?"),
        (
            {path.name: path.read_text() for path in sorted(HARBOURS.iterdir())},
            "Which harbours are deep enough for the ferry, and how many calls did they have in 2024?",
        ),
        (
            {key: text for number in range(12) for key, text in package(f"h{number}", "License: MIT").items()},
            "Which licences do these packages carry, what is each of them for, and what needs attention?",
        ),
    ],
)
async def test_its_sentences_are_supported_by_the_lines_that_they_cite(
    model: ChatModel, texts: dict[str, str], question: str
) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task(question)
    assert list_sentence_verdicts(team, written(team)) == {SupportVerdict.SUPPORTED}
    submitted = [text for made in team.world.handed_in.values() for text in render_cited_sentences(made)]
    assert SupportVerdict.NOT_SUPPORTED not in list_sentence_verdicts(team, "\n\n".join(submitted))


async def test_a_document_that_writes_it_otherwise_is_not_counted_for_words_that_it_cannot_be_cited_for(
    model: ChatModel,
) -> None:
    texts = {key: text for number in range(5) for key, text in package(f"a{number}", "License: BSD-3-Clause").items()}
    texts |= package("b1", "License: BSD 3 Clause") | package("c1", "License: PSF-2.0")
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task("Which licences do these packages carry?")
    head, _, rest = written(team).partition("\n\n## ")
    cited = " ".join(f"[a{number}.md:3-3]" for number in range(5))
    assert f'- 5 of 7 quoted documents say this. "BSD-3-Clause" {cited}\n' in head
    assert "Direct evidence" not in head
    assert rest.startswith("Direct evidence\n")


async def test_what_most_documents_say_is_counted_once_on_top(model: ChatModel) -> None:
    texts = {key: text for number in range(5) for key, text in package(f"a{number}", "License: MIT").items()}
    texts |= package("b1", "Classifier: License :: OSI Approved :: MIT License") | package("c1", "License: PSF-2.0")
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task("Which licences do these packages carry, and what of their colours?")
    assert team.world.find_misquotations() == []
    head, _, rest = written(team).partition("\n\n## ")
    assert head == snapshot("""\
In the sections below: 7 quotations from 7 documents.

- 6 of 7 quoted documents say this (5 cited here). "MIT" [a0.md:3-3] [a1.md:3-3] [a2.md:3-3] [a3.md:3-3] [a4.md:3-3]
- **c1**: "PSF-2.0" [c1.md:3-3]\
""")
    assert rest == snapshot("""\
Which licences do these packages carry

- "MIT": a0 [a0.md:3-3], a1 [a1.md:3-3], a2 [a2.md:3-3], a3 [a3.md:3-3], a4 [a4.md:3-3], b1 ("MIT License") [b1.md:3-3]
- **c1**: "PSF-2.0" [c1.md:3-3]

## What of their colours

**Open**

- Nothing in the documents matched: What of their colours?\
""")


async def test_what_a_search_found_behind_the_beginning_is_read(model: ChatModel) -> None:
    texts = package("a", "License: MIT") | package("z", "License-Expression: Apache-2.0", before=34)
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task("Which licences do these packages carry, and what of their colours?")
    assert '- **z**: "Apache-2.0" [z.md:36-36]' in team.world.report.sections[0].markdown


SIX = {
    "quay.md": "The northern quay was built of oak. Ships moor there in winter.",
    "toll.md": "The toll of the harbour was disputed. The toll was 14 guilders for each ship.",
    "light.md": "The light of the harbour is tended by two keepers.",
    "fish.md": "Herring was sold at the harbour. A ship brought 300 barrels to the harbour.",
    "council.md": "From: the council of the harbour\nSubject: The toll of the harbour\n\nWe write about the toll.",
    "dredge.md": "Each ship waits for the dredger of the harbour.",
}


async def test_the_sentence_with_the_figure_comes_first_of_six_documents(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(SIX))
    await team.run_task("How much was the toll of the harbour for a ship?")
    first = team.world.report.sections[0].markdown.splitlines()[0]
    assert first == '- **toll**: "The toll was 14 guilders for each ship." [toll.md:1-1]'
    assert "Subject:" not in written(team)


async def test_a_report_that_rests_on_an_analysis_alone_quotes_what_that_weighed(model: ChatModel) -> None:
    steps = (
        Step(id="research-1", role="research", title="Find", goal="How high is the rent?"),
        Step(id="analysis", role="analysis", title="Weigh", goal="Weigh it.", needs=("research-1",)),
        Step(id="writing", role="writing", title="Write", goal="Write it.", needs=("analysis",)),
    )
    team = OfflinePlanRunner(model, InMemoryTask(LEASE | {"other.md": "The garden has two trees."}))
    await team.run_task("How high is the rent?", Plan(steps=steps))
    assert written(team) == snapshot("""\
What was found, and what is missing, is in the sections below.

## Conclusions

**Find**

- **lease**: "The rent is 900 euros a month." [lease.md:3-3]

**Gaps**

- Find – This step quotes 1 of 2 documents; other was not read, or had no matching passage.\
""")


async def test_a_document_that_says_the_same_twice_is_named_once(model: ChatModel) -> None:
    text = (
        "Net revenues 9,795 10,420\n\nThe weather is told of.\n\nNet revenues 9,795 10,420\n\nNET REVENUES 9,795 10,420"
    )
    team = OfflinePlanRunner(
        model, InMemoryTask({"EBAY_2022.txt": text, "OTHER_2022.txt": "Weather.", "third.txt": "Nothing."})
    )
    await team.run_task("What was the revenue of eBay?")
    assert team.world.report.sections[0].markdown.splitlines()[:2] == [
        '- **EBAY_2022**: "Net revenues 9,795 10,420" [EBAY_2022.txt:1-1] [EBAY_2022.txt:5-5]',
        '- **EBAY_2022**: "NET REVENUES 9,795 10,420" [EBAY_2022.txt:7-7]',
    ]
    assert team.world.find_misquotations() == []


async def test_a_name_that_no_file_is_called_by_is_looked_for_in_their_texts(model: ChatModel) -> None:
    texts = {
        "acm-10-k.html": "# Acme\n\nAcme makes anvils.\n\n# Anvils\n\nAcme is old.\n\n# Sales of Acme\n\n"
        "Acme | 2024\nNet sales | 391\nCosts | 210",
        "brl-10-k.html": "Barrel makes barrels.\n\nBarrel knows Acme.\n\nMillions | 2024\nNet sales | 12,345\n"
        "Costs | 7",
    }
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task("What were the net sales of Acme in 2024?")
    (first, *others) = team.world.report.sections[0].markdown.splitlines()
    assert first == '- **acm-10-k**: 2024: "Net sales | 391" [acm-10-k.html:12-12]'
    assert not [line for line in others if "12,345" in line]
    assert "- Documents assumed to be about Acme, because Acme occurs often in them: acm-10-k." in others
