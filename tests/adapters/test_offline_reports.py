"""Whole reports of the offline model over documents that are read at a glance."""

from collections.abc import AsyncIterator

import pytest
from inline_snapshot import snapshot

from tests.adapters.offline_team import Team, World, offline_model
from waystation.adapters.anthropic.model import AnthropicModel
from waystation.adapters.offline.report import NO_MODEL

LEASE = {
    "lease.md": "# Lease\n\nThe rent is 900 euros a month. It is due in May.\n\nPets are not allowed in the house.",
}
ANNEX = {
    "annex.md": "The rent rises by 3 percent each January.\n\nWithout consent, subletting is not allowed.",
    "rules.md": "Quiet hours are at night.\n\nPets are not allowed in the house.",
}


def written(team: Team) -> str:
    report = team.world.report
    _, _, summary = report.summary.partition(NO_MODEL)
    return "\n\n".join([summary.strip(), *(f"## {one.heading}\n\n{one.markdown}" for one in report.sections)])


@pytest.fixture
async def model() -> AsyncIterator[AnthropicModel]:
    made = offline_model()
    yield made
    await made.aclose()


async def test_a_report_over_a_short_document_says_everything_once(model: AnthropicModel) -> None:
    team = Team(model, World(LEASE))
    await team.work("What is the rent, and what is not allowed?")
    assert team.world.misquoted() == []
    assert written(team) == snapshot("""\
In the sections below: 2 quotations from 1 document.

- **What is the rent**: 1 quotation, from lease
- **What is not allowed**: 1 quotation, from lease

## What is the rent

- **lease**: "The rent is 900 euros a month." [lease.md:3-3]

## What is not allowed

- **lease**: "Pets are not allowed in the house." [lease.md:5-5]

## Conclusions

Nothing beyond what is quoted above.\
""")


async def test_conclusions_name_what_the_sections_quote_and_quote_what_several_documents_say(
    model: AnthropicModel,
) -> None:
    team = Team(model, World(LEASE | ANNEX))
    await team.work("What is the rent, and what is not allowed?")
    assert team.world.misquoted() == []
    assert written(team) == snapshot("""\
In the sections below: 5 quotations from 3 documents.

- **What is the rent**: 2 quotations, from annex, lease
- **What is not allowed**: 3 quotations, from annex, lease, rules

## What is the rent

- **annex**: "The rent rises by 3 percent each January." [annex.md:1-1]
- **lease**: "The rent is 900 euros a month." [lease.md:3-3]

**Open**

- 2 of 3 documents are quoted here; the others were not read for this step or had no passage that matched its words.

## What is not allowed

- **annex**: "Without consent, subletting is not allowed." [annex.md:3-3]
- **lease**: "Pets are not allowed in the house." [lease.md:5-5]
- **rules**: "Pets are not allowed in the house." [rules.md:3-3]

## Conclusions

**What is the rent**

- Nearest to the question, quoted above: lease [lease.md:3-3], annex [annex.md:1-1]

**What is not allowed**

- 2 of 3 quoted documents say the same: "Pets are not allowed in the house." [lease.md:5-5] [rules.md:3-3]\
""")


async def test_a_section_points_at_what_an_earlier_one_quotes(model: AnthropicModel) -> None:
    team = Team(model, World(LEASE))
    await team.work("How high is the rent?")
    assert written(team) == snapshot("""\
In the sections below: 1 quotation from 1 document.

- **Direct evidence**: 1 quotation, from lease
- **Exceptions, limits and gaps**: 1 quotation, from lease

## Direct evidence

- **lease**: "The rent is 900 euros a month." [lease.md:3-3]

## Exceptions, limits and gaps

- Quoted above already: lease [lease.md:3-3]

## Conclusions

Nothing beyond what is quoted above.\
""")
