"""Hooks of compactions: when they are called and with what, and what becomes of a compaction where they fail."""

from dataclasses import replace

import pytest

from tests.support.agent_environment import NAME, AgentEnvironment
from tests.support.full_context import estimate_request_size, make_conversation, make_summary_response
from waystation.agents.compaction_request import EditOutcome, EditRequest
from waystation.agents.compactor import CompactionHooks, Compactor
from waystation.context.compaction import CompactionEvent, CompactionOutcome, CompactionStatus, ContextEdit
from waystation.kernel.errors import HookFailed, ModelUnavailable
from waystation.models.ports import ModelResponse
from waystation.tasks.context_editor import ContextEditor
from waystation.testing.doubles import RecordingHook, ScriptedModel


class RecordingHooks:
    """A team's hooks."""

    def __init__(self, *, blocks: bool = False) -> None:
        self.before, self.after, self.blocks = RecordingHook(), RecordingHook(), blocks

    def condenser(self, env: AgentEnvironment) -> Compactor:
        hooks = CompactionHooks(before=self.before, after=self.after, blocking=self.blocks)
        return replace(env.compactor, hooks=hooks)

    @property
    def told(self) -> tuple[list[CompactionEvent], list[CompactionEvent]]:
        return self.before.events, self.after.events


async def automatic(env: AgentEnvironment, team: RecordingHooks, *replies: ModelResponse) -> CompactionOutcome:
    env.model = ScriptedModel(replies)
    return await team.condenser(env).compact(env.make_compaction_request(await estimate_request_size(env)))


async def manual(env: AgentEnvironment, team: RecordingHooks, *replies: ModelResponse) -> EditOutcome:
    env.model = ScriptedModel(replies)
    edit = ContextEdit(id="edit-1", agent="research-1", action="compact", requested_at=env.clock.now)
    asked = EditRequest(
        run=env.run_ref(), config=env.terms, limit=env.limit, edit=edit, token_ratio=1.0, known_records=0
    )
    return await ContextEditor(team.condenser(env)).edit(asked)


async def test_both_are_told_of_a_compaction_in_references_and_numbers(full_env: AgentEnvironment) -> None:
    team = RecordingHooks()
    outcome = await automatic(full_env, team, make_summary_response())
    (before,), (after,) = team.told
    assert before == CompactionEvent(
        event="before",
        trigger="auto",
        task="task-1",
        agent="research-1",
        run_id="task-1/research-1",
        strategy="window",
        tokens=outcome.tokens_before,
        window=full_env.terms.window,
    )
    assert after == before.replace(
        event="after",
        status=CompactionStatus.COMPRESSED,
        compaction_id=outcome.compaction_id,
        tokens_after=outcome.tokens_after,
        covered=outcome.covered,
        notes=0,
    )
    assert "status" not in before.json_line
    assert NAME not in before.json_line + after.json_line


async def test_one_by_hand_is_told_apart(full_env: AgentEnvironment) -> None:
    team = RecordingHooks()
    assert (await manual(full_env, team, make_summary_response())).state == "done"
    (before,), (after,) = team.told
    assert (before.trigger, after.trigger, after.status) == ("manual", "manual", CompactionStatus.COMPRESSED)


async def test_a_summary_that_fails_and_what_is_done_instead_are_one_compaction(
    full_env: AgentEnvironment,
) -> None:
    team = RecordingHooks()
    await automatic(full_env, team, make_summary_response(""))
    (before,), (after,) = team.told
    assert (before.event, after.status, after.notes) == ("before", CompactionStatus.TRUNCATED, 1)


async def test_a_refused_one_by_hand_has_ended_too(full_env: AgentEnvironment) -> None:
    team = RecordingHooks()
    assert (await manual(full_env, team, make_summary_response(""))).state == "refused"
    (_,), (after,) = team.told
    assert (after.status, after.compaction_id) == (CompactionStatus.FAILED_EMPTY_SUMMARY, "")


async def test_nobody_is_told_where_there_is_nothing_to_do(env: AgentEnvironment) -> None:
    team = RecordingHooks()
    await env.commit_conversation(make_conversation()[:1])
    assert (await automatic(env, team)).status is CompactionStatus.NOOP
    assert (await manual(env, team)).state == "refused"
    assert team.told == ([], [])


async def test_another_attempt_tells_again(full_env: AgentEnvironment) -> None:
    team = RecordingHooks()
    request = full_env.make_compaction_request(await estimate_request_size(full_env))
    full_env.model = ScriptedModel([ModelUnavailable("overloaded", possibly_billed=False)])
    with pytest.raises(ModelUnavailable):
        await team.condenser(full_env).compact(request)
    assert [len(told) for told in team.told] == [1, 0]
    full_env.model = ScriptedModel([make_summary_response()])
    await team.condenser(full_env).compact(request)
    assert [len(told) for told in team.told] == [2, 1]
    await team.condenser(full_env).compact(request)
    assert [len(told) for told in team.told] == [2, 2]
    first, again = team.after.events
    assert again == first


async def test_a_hook_that_fails_is_told_and_blocks_nothing(full_env: AgentEnvironment) -> None:
    team = RecordingHooks()
    team.before.failing = team.after.failing = True
    outcome = await automatic(full_env, team, make_summary_response())
    assert outcome.status is CompactionStatus.COMPRESSED
    assert outcome.notes == ("A hook failed: the hook was told to fail.",) * 2
    assert team.after.events[0].notes == 1


@pytest.mark.parametrize("tool", ["recall", "read_document"], ids=["summary", "mask"])
async def test_a_hook_that_may_block_leaves_everything_as_it_was(env: AgentEnvironment, tool: str) -> None:
    await env.commit_conversation(make_conversation(tool, 1_300))
    before = await env.load_transcript()
    team = RecordingHooks(blocks=True)
    team.before.failing = True
    outcome = await automatic(env, team, make_summary_response())
    assert (outcome.status, outcome.compaction_id, env.model.calls) == (CompactionStatus.BLOCKED, "", 0)
    assert outcome.tokens_after == outcome.tokens_before
    assert outcome.notes == ("A hook failed: the hook was told to fail.",)
    assert (await env.load_transcript()).records == before.records == ()
    assert [len(told) for told in team.told] == [1, 0]


async def test_one_by_hand_that_is_blocked_is_refused_with_the_reason(full_env: AgentEnvironment) -> None:
    team = RecordingHooks(blocks=True)
    team.before.failing = True
    outcome = await manual(full_env, team, make_summary_response())
    assert (outcome.state, full_env.model.calls) == ("refused", 0)
    assert outcome.reason.startswith("not compacted: the hook before the compaction failed. ")
    assert outcome.reason.endswith(" A hook failed: the hook was told to fail.")


async def test_a_hook_that_may_block_and_does_not_fail_blocks_nothing_and_one_after_never_does(
    full_env: AgentEnvironment,
) -> None:
    team = RecordingHooks(blocks=True)
    team.after.failing = True
    outcome = await automatic(full_env, team, make_summary_response())
    assert outcome.status is CompactionStatus.COMPRESSED
    assert outcome.notes == ("A hook failed: the hook was told to fail.",)


async def test_without_hooks_there_is_nothing_to_call() -> None:
    event = CompactionEvent(
        event="before", trigger="auto", task="t", agent="a", run_id="t/a", strategy="ends", tokens=1, window=2
    )
    assert await CompactionHooks().call_hook(event) is None
    failing = RecordingHook()
    failing.failing = True
    assert await CompactionHooks(after=failing).call_hook(event) is None
    with pytest.raises(HookFailed):
        await failing.call(event)
