"""Hooks of compactions: when they are called and with what, and what becomes of a compaction where they fail."""

from dataclasses import replace

import pytest

from tests.agents.full_context import conversation, request_size, summary
from tests.agents.office import NAME, Office
from waystation.agents.compactor import CompactionHooks, Compactor
from waystation.context.outcome import (
    CompactionEvent,
    CompactionOutcome,
    ContextEdit,
    EditOutcome,
    EditRequest,
    Status,
)
from waystation.kernel.errors import HookFailed, ModelUnavailable
from waystation.models.ports import ModelResponse
from waystation.tasks.context_editor import Editor
from waystation.testing import RecordingHook, ScriptedModel


class Team:
    """A team's hooks."""

    def __init__(self, *, blocks: bool = False) -> None:
        self.before, self.after, self.blocks = RecordingHook(), RecordingHook(), blocks

    def condenser(self, office: Office) -> Compactor:
        hooks = CompactionHooks(before=self.before, after=self.after, blocks=self.blocks)
        return replace(office.condenser, hooks=hooks)

    @property
    def told(self) -> tuple[list[CompactionEvent], list[CompactionEvent]]:
        return self.before.told, self.after.told


async def automatic(office: Office, team: Team, *replies: ModelResponse) -> CompactionOutcome:
    office.model = ScriptedModel(replies)
    return await team.condenser(office).compress(office.compaction(await request_size(office)))


async def manual(office: Office, team: Team, *replies: ModelResponse) -> EditOutcome:
    office.model = ScriptedModel(replies)
    edit = ContextEdit(id="edit-1", agent="research-1", action="compact", asked_at=office.clock.now)
    asked = EditRequest(
        run=office.run_ref(), terms=office.terms, limit=office.limit, edit=edit, scale=1.0, known_records=0
    )
    return await Editor(team.condenser(office)).edit(asked)


async def test_both_are_told_of_a_compaction_in_references_and_numbers(full: Office) -> None:
    team = Team()
    outcome = await automatic(full, team, summary())
    (before,), (after,) = team.told
    assert before == CompactionEvent(
        event="before",
        trigger="auto",
        task="task-1",
        agent="research-1",
        run_id="task-1/research-1",
        strategy="window",
        tokens=outcome.tokens_before,
        window=full.terms.window,
    )
    assert after == before.replace(
        event="after",
        status=Status.COMPRESSED,
        compaction_id=outcome.compaction_id,
        tokens_after=outcome.tokens_after,
        covered=outcome.covered,
        notes=0,
    )
    assert "status" not in before.body
    assert NAME not in before.body + after.body


async def test_one_by_hand_is_told_apart(full: Office) -> None:
    team = Team()
    assert (await manual(full, team, summary())).state == "done"
    (before,), (after,) = team.told
    assert (before.trigger, after.trigger, after.status) == ("manual", "manual", Status.COMPRESSED)


async def test_a_summary_that_fails_and_what_is_done_instead_are_one_compaction(full: Office) -> None:
    team = Team()
    await automatic(full, team, summary(""))
    (before,), (after,) = team.told
    assert (before.event, after.status, after.notes) == ("before", Status.TRUNCATED, 1)


async def test_a_refused_one_by_hand_has_ended_too(full: Office) -> None:
    team = Team()
    assert (await manual(full, team, summary(""))).state == "refused"
    (_,), (after,) = team.told
    assert (after.status, after.compaction_id) == (Status.FAILED_EMPTY_SUMMARY, "")


async def test_nobody_is_told_where_there_is_nothing_to_do(office: Office) -> None:
    team = Team()
    await office.said(conversation()[:1])
    assert (await automatic(office, team)).status is Status.NOOP
    assert (await manual(office, team)).state == "refused"
    assert team.told == ([], [])


async def test_another_attempt_tells_again(full: Office) -> None:
    team = Team()
    request = full.compaction(await request_size(full))
    full.model = ScriptedModel([ModelUnavailable("overloaded", possibly_billed=False)])
    with pytest.raises(ModelUnavailable):
        await team.condenser(full).compress(request)
    assert [len(told) for told in team.told] == [1, 0]
    full.model = ScriptedModel([summary()])
    await team.condenser(full).compress(request)
    assert [len(told) for told in team.told] == [2, 1]
    await team.condenser(full).compress(request)
    assert [len(told) for told in team.told] == [2, 2]
    first, again = team.after.told
    assert again == first


async def test_a_hook_that_fails_is_told_and_blocks_nothing(full: Office) -> None:
    team = Team()
    team.before.failing = team.after.failing = True
    outcome = await automatic(full, team, summary())
    assert outcome.status is Status.COMPRESSED
    assert outcome.notes == ("A hook failed: the hook was told to fail.",) * 2
    assert team.after.told[0].notes == 1


@pytest.mark.parametrize("tool", ["recall", "read_document"], ids=["summary", "mask"])
async def test_a_hook_that_may_block_leaves_everything_as_it_was(office: Office, tool: str) -> None:
    await office.said(conversation(tool, 1_300))
    before = await office.transcript()
    team = Team(blocks=True)
    team.before.failing = True
    outcome = await automatic(office, team, summary())
    assert (outcome.status, outcome.compaction_id, office.model.calls) == (Status.BLOCKED, "", 0)
    assert outcome.tokens_after == outcome.tokens_before
    assert outcome.notes == ("A hook failed: the hook was told to fail.",)
    assert (await office.transcript()).records == before.records == ()
    assert [len(told) for told in team.told] == [1, 0]


async def test_one_by_hand_that_is_blocked_is_refused_with_the_reason(full: Office) -> None:
    team = Team(blocks=True)
    team.before.failing = True
    outcome = await manual(full, team, summary())
    assert (outcome.state, full.model.calls) == ("refused", 0)
    assert outcome.reason.startswith("not compacted: the hook before it failed. ")
    assert outcome.reason.endswith(" A hook failed: the hook was told to fail.")


async def test_a_hook_that_may_block_and_does_not_fail_blocks_nothing_and_one_after_never_does(full: Office) -> None:
    team = Team(blocks=True)
    team.after.failing = True
    outcome = await automatic(full, team, summary())
    assert outcome.status is Status.COMPRESSED
    assert outcome.notes == ("A hook failed: the hook was told to fail.",)


async def test_without_hooks_there_is_nothing_to_call() -> None:
    event = CompactionEvent(
        event="before", trigger="auto", task="t", agent="a", run_id="t/a", strategy="ends", tokens=1, window=2
    )
    assert await CompactionHooks().call(event) is None
    failing = RecordingHook()
    failing.failing = True
    assert await CompactionHooks(after=failing).call(event) is None
    with pytest.raises(HookFailed):
        await failing.call(event)
