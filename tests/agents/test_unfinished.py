"""Open work in a run: what the summary's ledger says is left to do, whatever the summariser wrote."""

from tests.agents.full_context import compressed, conversation, summary
from tests.agents.office import NAME, NAME_PLACEHOLDER, Office, use
from tests.unit.histories import says
from waystation.agents.compactor import describe_unfinished_result
from waystation.context.outcome import Status
from waystation.context.summary import UNDONE, parse_ledger_entries
from waystation.testing import ScriptedModel

NOTE = {"text": "It silted up.", "document": "harbour.md", "first_line": 2, "last_line": 2}


async def open_lines(office: Office) -> tuple[str, ...]:
    """What the ledger of the compaction that is made now has as open."""
    outcome = await compressed(office, ScriptedModel([summary("It went on.")]))
    assert outcome.status is Status.COMPRESSED
    (record,) = (await office.transcript()).compactions
    assert record.type == "summarised"
    return parse_ledger_entries(record.summary, UNDONE)


async def test_the_summary_says_that_the_result_is_not_handed_in_and_what_is_kept_for_it(full: Office) -> None:
    await full.call(use("take_note", "n1", **NOTE))
    assert await open_lines(full) == ("this step: its result is not handed in; kept so far: 1 notes (read_notes)",)


async def test_what_the_agents_own_list_has_open_is_there_redacted(office: Office) -> None:
    first, *turns = conversation()
    await office.said([first, *turns[:4], says("m6x", f"[DONE] search\n[TODO] ask {NAME}"), *turns[4:]])
    assert await open_lines(office) == (
        f"[TODO] ask {NAME_PLACEHOLDER}",
        "this step: its result is not handed in; kept so far: nothing",
    )


async def test_a_writer_is_told_which_sections_it_has_written(office: Office) -> None:
    for heading in ("Causes", "Sources"):
        await office.call(use("write_section", heading=heading, markdown="Silt."), "writing")
    assert await describe_unfinished_result(office.store, office.run_ref("writing")) == (
        "this step: its result is not handed in; kept so far: sections “Causes”, “Sources”"
    )
