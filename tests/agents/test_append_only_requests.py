"""What an agent's model was sent is only added to between two compactions, whatever happens meanwhile."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.agents.test_agent_loop_attempts import Crash, CrashingSearch
from tests.agents.test_document_change_notices import NEWER, update_documents
from tests.agents.test_task_messages import send_message
from tests.agents.test_tool_visibility_in_runs import LongPluginTool, Shout
from tests.support.agent_environment import AgentEnvironment, make_tool_use, never_interrupted
from tests.support.agent_fixtures import open_agent_environment_copy
from tests.support.append_only import find_prefix_breaks
from tests.support.conversations import make_filler_text
from tests.support.full_context import make_summary_response, run_compaction
from tests.support.strict_server import Body, StrictServer
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.leg import AgentFinished, ContextFull, LegOutcome, LegRequest, TurnLimitReached
from waystation.agents.loop import AgentLoop
from waystation.agents.roles import AgentDeps
from waystation.agents.tool_visibility import ToolPolicy
from waystation.agents.tools.tool import Tool
from waystation.context.compaction import CompactionStatus
from waystation.context.history import build_model_view, build_view_without_outdated_thinking, find_prompt_prefix
from waystation.context.policy import StrategyName
from waystation.context.transcript import PromptPrefixRecord, Thinking, ToolUse
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelUnavailable
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelResponse
from waystation.tasks.context_editor import TranscriptRewinder
from waystation.testing.doubles import ScriptedModel, make_scripted_response

SUBMIT = {"findings": [{"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}]}
MODEL = "claude-sonnet-5-5"


def moves(call_id: str, turn: int) -> ToolUse:
    """Something else at every turn, now and then something that fails."""
    said = make_filler_text(200)
    of_turn = (
        make_tool_use("list_documents", call_id),
        make_tool_use("read_document", call_id, name="harbour.md"),
        make_tool_use("read_document", call_id, name="no such document"),
        make_tool_use("take_note", call_id, text=said, document="harbour.md", first_line=2, last_line=2),
        make_tool_use("no_such_tool", call_id),
        make_tool_use("search_documents", call_id, query="harbour"),
        make_tool_use("read_notes", call_id, first=1, count=20),
    )
    return of_turn[turn % len(of_turn)]


class Run:
    """One agent with the real client of a server that binds thinking to its prefix."""

    def __init__(self, env: AgentEnvironment, *, turn_limit: int = 3, strategy: StrategyName = "window") -> None:
        self.office = env
        env.limit = Limit(tokens=400_000)
        env.terms = env.terms.replace(model=MODEL, turn_limit=turn_limit, strategy=strategy)
        self.server = StrictServer(self._answer)
        self.leg_number = 0
        self.ends = False
        self.length = 600
        """Estimated tokens of what it thinks at a turn."""
        self._calls = count()

    def _answer(self, _: Body) -> ModelResponse:
        number = next(self._calls)
        thought = Thinking(thinking=f"Thought {number}. {make_filler_text(self.length)}", signature="")
        call = make_tool_use("submit_findings", f"c{number}", **SUBMIT) if self.ends else moves(f"c{number}", number)
        return make_scripted_response(thought, call)

    async def leg(self, desk: AgentDeps | None = None) -> LegOutcome:
        self.leg_number += 1
        return await self.attempt(desk)

    async def attempt(self, desk: AgentDeps | None = None) -> LegOutcome:
        env = self.office
        client = create_anthropic_model("key", "http://model.test", self.server.http_client())
        metered = MeteredModel(model=client, store=env.store, clock=env.clock, meter=env.meter)
        loop = AgentLoop(
            model=metered,
            deps=desk or env.agent_deps,
            briefs=env.brief_builder,
            clock=env.clock,
            sleep=env.record_pause,
        )
        request = LegRequest(run=env.run_ref(), leg=self.leg_number, limit=env.limit, config=env.terms)
        return await loop.run(request, never_interrupted)

    @property
    def breaks(self) -> list[int]:
        return find_prefix_breaks(self.server.bodies)

    @property
    def nothing_was_lost(self) -> bool:
        binding = self.server.binding
        return binding.dropped == [] and binding.sent_back > 0 and self.server.refusals == []


@pytest.mark.parametrize("strategy", ["window", "snapshot", "ends", "replace"])
async def test_over_a_whole_run_requests_break_off_at_compactions_alone_and_no_thought_is_lost(
    env: AgentEnvironment, strategy: StrategyName
) -> None:
    run = Run(env, strategy=strategy)
    compacted: list[int] = []
    told = count(1)
    while len(compacted) < 3:
        outcome = await run.leg()
        if isinstance(outcome, ContextFull):
            assert (await run_compaction(env, ScriptedModel([make_summary_response()]))).status.made_room
            compacted.append(len(run.server.bodies) + 1)
        else:
            assert isinstance(outcome, TurnLimitReached)
            number = next(told)
            await send_message(env, number, f"Look at basin {number}, too.")
        assert run.leg_number < 90
    await run.leg()
    assert [number for number in run.breaks if number not in compacted] == []
    assert run.nothing_was_lost


class Eventful:
    """A run to which anything may happen, and the requests before which the context was compacted."""

    def __init__(self, env: AgentEnvironment) -> None:
        self.run = Run(env)
        self.compacted: set[int] = set()
        self._numbers = count(1)

    async def leg(self) -> None:
        if isinstance(await self.run.leg(), ContextFull):
            await self.compaction()

    async def crash(self) -> None:
        self.run.leg_number += 1
        try:
            await self.run.attempt(replace(self.run.office.agent_deps, search=CrashingSearch()))
        except Crash:
            await self.run.attempt()

    async def failure(self) -> None:
        good = self.run.server.answer

        def fail(_: Body) -> ModelResponse:
            self.run.server.answer = good
            raise ConnectionError

        self.run.server.answer = fail
        with suppress(ModelUnavailable, ConnectionError):
            await self.run.leg()
        self.run.server.answer = good
        await self.run.attempt()

    async def message(self) -> None:
        number = next(self._numbers)
        await send_message(self.run.office, number, f"Look at basin {number}, too.")

    async def documents(self) -> None:
        number = next(self._numbers)
        newer = NEWER.replace(text=f"{NEWER.text}It was dredged {number} times.\n")
        await update_documents(self.run.office, number, newer)

    async def compaction(self) -> None:
        if self.run.server.bodies:
            await run_compaction(self.run.office, ScriptedModel([make_summary_response()]))
            self.compacted.add(len(self.run.server.bodies) + 1)


@given(
    happenings=st.lists(
        st.sampled_from(["leg", "crash", "failure", "message", "documents", "compaction"]), min_size=3, max_size=14
    ),
    strategy=st.sampled_from(["window", "snapshot", "ends", "replace"]),
)
@example(happenings=["leg", "message", "crash", "documents", "compaction", "failure", "leg"], strategy="window")
async def test_whatever_happens_in_whatever_order_requests_break_off_at_compactions_alone(
    prepared_stores: Path, tmp_path_factory: pytest.TempPathFactory, happenings: list[str], strategy: StrategyName
) -> None:
    async with open_agent_environment_copy(prepared_stores / "planned.db", tmp_path_factory.mktemp("run")) as env:
        eventful = Eventful(env)
        env.terms = env.terms.replace(strategy=strategy)
        for happening in happenings:
            await getattr(eventful, happening)()
        await eventful.leg()
        await eventful.leg()
        assert set(eventful.run.breaks) <= eventful.compacted
        assert eventful.run.nothing_was_lost


async def test_what_a_crash_interrupted_goes_on_behind_the_same_bytes(env: AgentEnvironment) -> None:
    run = Run(env, turn_limit=40)
    run.leg_number = 1
    crashing = replace(env.agent_deps, search=CrashingSearch())
    with pytest.raises(Crash):
        await run.attempt(crashing)
    await update_documents(env, 1, NEWER)
    run.ends = True
    assert isinstance(await run.attempt(), AgentFinished)
    assert run.breaks == []
    assert run.nothing_was_lost


async def test_a_call_that_failed_is_asked_again_with_the_same_bytes_or_more(env: AgentEnvironment) -> None:
    run = Run(env)
    await run.leg()
    good = run.server.answer
    failing = iter([True, True])

    def answer(body: Body) -> ModelResponse:
        if next(failing, False):
            raise ConnectionError
        return good(body)

    run.server.answer = answer
    run.leg_number += 1
    for _ in range(2):
        with pytest.raises((ModelUnavailable, ConnectionError)):
            await run.attempt()
    assert isinstance(await run.attempt(), TurnLimitReached)
    assert run.breaks == []
    assert run.nothing_was_lost


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ToolPolicy(), ToolPolicy(added_tool_tokens=0)),
        (ToolPolicy(added_tool_tokens=0), ToolPolicy()),
        (ToolPolicy(), ToolPolicy(limits={})),
    ],
    ids=["a smaller budget for tools", "a larger one", "the same"],
)
async def test_tools_stay_between_compactions_and_follow_at_the_next(
    env: AgentEnvironment, before: ToolPolicy, after: ToolPolicy
) -> None:
    run = Run(env)
    deps = replace(env.agent_deps, plugins=(LongPluginTool(),))
    await run.leg(replace(deps, policy=before))
    await run.leg(replace(deps, policy=after))
    assert run.breaks == []
    assert run.nothing_was_lost
    assert run.server.bodies[0]["tools"] == run.server.bodies[-1]["tools"]


@pytest.mark.parametrize(
    ("first", "then"),
    [((), (Shout(),)), ((Shout(),), ())],
    ids=["one more", "one that is away"],
)
async def test_a_tool_that_comes_or_goes_changes_nothing_before_the_next_compaction(
    env: AgentEnvironment, first: Sequence[Tool], then: Sequence[Tool]
) -> None:
    run = Run(env)
    await run.leg(replace(env.agent_deps, web=first))
    await run.leg(replace(env.agent_deps, web=then))
    assert run.breaks == []
    assert run.nothing_was_lost


async def test_a_tool_that_somebody_denies_is_gone_at_once_and_that_is_recorded(env: AgentEnvironment) -> None:
    run = Run(env)
    await run.leg()
    await run.leg(replace(env.agent_deps, policy=ToolPolicy(denied=("list_documents",))))
    records = [one for one in (await env.load_transcript()).records if isinstance(one, PromptPrefixRecord)]
    listed = [{tool.name for tool in record.tools} for record in records]
    assert listed[0] - listed[1] == {"list_documents"}
    assert len(run.breaks) == len(records) - 1 == 1
    assert run.nothing_was_lost, "what was thought before that is left out by us"


async def test_after_a_rewind_thinking_from_before_it_is_left_out(env: AgentEnvironment) -> None:
    run = Run(env)
    await run.leg()
    await TranscriptRewinder(env.store, env.outbox_drainer, env.agent_deps.submission_checker).rewind(
        env.run_ref(), "m3", "edit-1", keep=True
    )
    await run.leg()
    assert len(run.breaks) == 1
    assert run.nothing_was_lost


async def test_the_prefix_is_recorded_once_between_two_compactions(env: AgentEnvironment) -> None:
    run = Run(env)
    for _ in range(3):
        assert isinstance(await run.leg(), TurnLimitReached)
    transcript = await env.load_transcript()
    (record,) = (one for one in transcript.records if isinstance(one, PromptPrefixRecord))
    assert find_prompt_prefix(transcript) == record
    assert build_view_without_outdated_thinking(transcript) == build_model_view(transcript)
    outcome = await run_compaction(env, ScriptedModel([make_summary_response()]))
    if outcome.status is CompactionStatus.COMPRESSED:
        assert find_prompt_prefix(await env.load_transcript()) is None
