from tests.agents.full_context import (
    SPENT_BEFORE,
    compressed,
    conversation,
    passages_of,
    request_size,
    summary,
)
from tests.agents.office import NAME, NAME_PLACEHOLDER, Office, use
from tests.unit.histories import research
from waystation.agents.leg import AgentFinished
from waystation.context.history import build_model_view
from waystation.context.legality import find_violations
from waystation.context.outcome import Status
from waystation.context.transcript import build_user_message
from waystation.testing import ScriptedModel, make_scripted_response


async def test_a_summary_stands_for_the_middle_and_makes_room(full: Office) -> None:
    before = await request_size(full)
    outcome = await compressed(full, ScriptedModel([summary()]))
    assert (outcome.status, outcome.tokens_before) == (Status.COMPRESSED, before)
    assert outcome.tokens_after == await request_size(full) <= full.terms.target
    transcript = await full.transcript()
    (record,) = transcript.records
    assert (record.type, record.id) == ("summarised", outcome.compaction_id)
    assert len(transcript.messages) == 27
    shown = build_model_view(transcript)
    assert find_violations(shown) == ()
    assert shown[0] == transcript.messages[0]
    assert shown[-2:] == transcript.messages[-2:]
    assert any("<earlier_conversation>" in message.text for message in shown)


async def test_the_summary_is_charged_to_the_agent_run_that_needs_it(full: Office) -> None:
    outcome = await compressed(full, ScriptedModel([summary()]))
    assert outcome.totals.spent.tokens == SPENT_BEFORE + 9_400
    assert (outcome.totals.turns, outcome.totals.possibly_billed) == (13, 0)


async def test_the_summariser_and_memory_never_see_what_is_replaced(full: Office) -> None:
    model = ScriptedModel([summary()])
    outcome = await compressed(full, model)
    sent = model.requests[0].model_dump_json()
    assert model.requests[0].model == "small"
    assert NAME not in sent
    assert NAME_PLACEHOLDER in sent
    (record,) = (await full.transcript()).records
    assert NAME not in record.model_dump_json()
    assert NAME_PLACEHOLDER in record.model_dump_json()
    assert NAME not in "".join(passages_of(full))
    assert NAME_PLACEHOLDER in "".join(passages_of(full))
    assert outcome.redactions == 2
    assert NAME not in outcome.model_dump_json()


async def test_what_is_hidden_is_in_memory_and_found_again(full: Office) -> None:
    outcome = await compressed(full, ScriptedModel([summary()]))
    assert outcome.passages == len(full.memory.passages) > 0
    assert (outcome.passages_waiting, await full.store.count_pending_passages()) == (0, 0)
    assert "kept the harbour" in await full.call(use("recall", query=f"{NAME} kept"))


async def test_the_agent_goes_on_after_a_compaction(full: Office) -> None:
    await compressed(full, ScriptedModel([summary()]))
    model = ScriptedModel([make_scripted_response(use("submit_findings", "c99", findings=[]))])
    assert isinstance(await full.leg(model), AgentFinished)
    assert find_violations(model.requests[0].messages) == ()
    assert "<earlier_conversation>" in model.requests[0].model_dump_json()


async def test_a_retry_after_the_commit_makes_no_second_summary_charge_or_passage(full: Office) -> None:
    model = ScriptedModel([summary()])
    request = full.compaction(await request_size(full))
    full.model = model
    first = await full.condenser.compress(request)
    stored = dict(full.memory.passages)
    again = await full.condenser.compress(request)
    assert model.calls == 1
    assert again.replace(redactions=first.redactions) == first
    assert again.redactions == 1  # the one in the summary is not looked for again
    assert full.memory.passages == stored
    assert len((await full.transcript()).records) == 1


async def test_a_crash_before_memory_has_the_passages_loses_none(full: Office) -> None:
    request = full.compaction(await request_size(full))
    full.model = ScriptedModel([summary()])
    full.memory.failing = True
    first = await full.condenser.compress(request)
    assert (first.status, first.passages_waiting) == (Status.COMPRESSED, first.passages)
    assert first.notes == ("Memory does not answer; passages wait in the store and are written later.",)
    full.memory.failing = False
    again = await full.condenser.compress(request)
    assert (again.passages, again.passages_waiting, again.notes) == (first.passages, 0, ())
    assert len(full.memory.passages) == first.passages
    assert full.model.calls == 1


async def test_a_late_attempt_at_what_was_done_takes_the_run_away_from_nobody(full: Office) -> None:
    request = full.compaction(await request_size(full))
    full.model = ScriptedModel([summary()])
    await full.condenser.compress(request)
    working = await full.site()
    await full.condenser.compress(request)
    version = (await full.transcript()).version
    await full.store.commit_message(working.fence, version, build_user_message("m28", "Go on."))


async def test_old_results_that_can_be_read_again_are_masked_without_a_summary(office: Office) -> None:
    await office.said(conversation("read_document", 1000))
    model = ScriptedModel([])
    request = office.compaction(await request_size(office))
    office.model = model
    outcome = await office.condenser.compress(request)
    assert (outcome.status, outcome.passages, model.calls) == (Status.MASKED, 0, 0)
    assert outcome.tokens_after == await request_size(office) <= office.terms.target
    assert passages_of(office) == []
    assert await office.condenser.compress(request) == outcome
    assert len((await office.transcript()).records) == 1


async def test_a_truncation_is_reported_the_same_by_a_retry(full: Office) -> None:
    request = full.compaction(await request_size(full)).replace(give_up_summary=True)
    first = await full.condenser.compress(request)
    assert first.status is Status.TRUNCATED
    assert await full.condenser.compress(request) == first


async def test_the_size_that_the_provider_counted_decides_not_the_estimate(office: Office) -> None:
    """A conversation under the trigger by its estimate, of which the provider counted nearly twice as many tokens."""
    await office.said(conversation(result_tokens=700))
    estimated = await request_size(office)
    assert estimated < office.terms.trigger
    counted = round(estimated * 1.9)
    office.model = ScriptedModel([summary()])
    outcome = await office.condenser.compress(office.compaction(counted))
    assert outcome.status is Status.COMPRESSED
    assert outcome.tokens_before in {counted, counted + 1}
    assert outcome.tokens_after <= office.terms.target


async def test_a_context_that_is_not_full_is_left_alone(office: Office) -> None:
    await office.said(conversation(result_tokens=50))
    model = ScriptedModel([])
    outcome = await compressed(office, model)
    assert (outcome.status, outcome.compaction_id, model.calls) == (Status.NOOP, "", 0)
    assert (await office.transcript()).records == ()


async def test_a_second_compaction_covers_the_first_summary_and_stores_only_what_is_newly_hidden(full: Office) -> None:
    await compressed(full, ScriptedModel([summary()]))
    before = set(full.memory.passages)
    await full.said(research(12, 1_300, tool="recall", start=14))
    model = ScriptedModel([summary("It silted up again.")])
    outcome = await compressed(full, model, known_records=1)
    assert outcome.status is Status.COMPRESSED
    assert "let it silt up" in model.requests[0].model_dump_json()
    new = [item.passage for key, item in full.memory.passages.items() if key not in before]
    assert len(new) == outcome.passages > 0
    assert all("let it silt up" not in passage.text for passage in new)
    shown = build_model_view(await full.transcript())
    assert sum("<earlier_conversation>" in message.text for message in shown) == 1
    assert find_violations(shown) == ()
