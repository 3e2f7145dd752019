"""Calls that ask a person: the leg ends before anything of the reply is carried out."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.agent_environment import (
    NAME,
    NAME_PLACEHOLDER,
    NOON,
    SECRET,
    SECRET_PLACEHOLDER,
    AgentEnvironment,
    make_tool_use,
    never_interrupted,
    without_statuses,
)
from tests.support.full_context import make_conversation, make_summary_response
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.send_letter_tool import SendLetterTool
from waystation.agents.action_approvals import MAX_OPEN_QUESTIONS, ActionDecision, ActionQuestion
from waystation.agents.compaction_request import EditRequest
from waystation.agents.leg import AgentFinished, ApprovalRequired, LegOutcome, LegRequest
from waystation.agents.loop import CONTINUE_WITHOUT_IT, EXPIRED, NO_APPROVER, QUESTION_NOT_REDACTABLE
from waystation.context.compaction import ContextEdit
from waystation.context.transcript import Message, ToolResult
from waystation.kernel.errors import TextRedactionError
from waystation.models.ports import ModelResponse
from waystation.privacy.policy import RedactionResult, TextDestination, make_failed_redaction
from waystation.tasks.context_editor import ContextEditor
from waystation.testing.doubles import PlainRedactor, ScriptedModel, make_scripted_response

SUBMIT = make_scripted_response(
    make_tool_use("submit_findings", "c9", findings=[{"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}])
)
NOTE = make_tool_use("take_note", "c1", text="It silted up.", document="harbour.md", first_line=2, last_line=2)
LETTER = make_tool_use("send_letter", "c2", to="the keeper", text="Is it true?")
ASKING = make_scripted_response(NOTE, LETTER)


class LettersEnvironment:
    """An office whose agents may send letters."""

    def __init__(self, env: AgentEnvironment) -> None:
        self.office, self.tool = env, SendLetterTool()
        self._leg = 0

    async def leg(
        self,
        replies: Sequence[ModelResponse],
        *decisions: ActionDecision,
        hard: bool = False,
        number: int | None = None,
    ) -> LegOutcome:
        """The next leg, with what was decided."""
        env, self._leg = self.office, number or self._leg + 1
        env.model = ScriptedModel(replies)
        request = LegRequest(
            run=env.run_ref(),
            leg=self._leg,
            limit=env.limit,
            config=env.terms.replace(hard_budget=hard),
            decisions=decisions,
        )
        return await replace(env.agent_loop, deps=replace(env.agent_deps, web=(self.tool,))).run(
            request, never_interrupted
        )

    async def asked(self, *replies: ModelResponse) -> tuple[ActionQuestion, ...]:
        outcome = await self.leg(replies)
        assert isinstance(outcome, ApprovalRequired)
        return outcome.questions

    async def results(self) -> tuple[ToolResult, ...]:
        """The answers to the first reply."""
        return (await self.office.load_messages())[2].tool_results


@pytest.fixture
def letters(env: AgentEnvironment) -> LettersEnvironment:
    return LettersEnvironment(env)


def decision(question: ActionQuestion, *, allowed: bool, note: str = "", expired: bool = False) -> ActionDecision:
    return ActionDecision(digest=question.digest, allowed=allowed, note=note, expired=expired)


async def test_a_reply_with_a_call_that_asks_ends_the_leg_before_any_of_its_calls_is_carried_out(
    letters: LettersEnvironment,
) -> None:
    (question,) = await letters.asked(ASKING)
    assert (question.call_id, question.tool, question.hidden_characters) == ("c2", "send_letter", 0)
    assert question.text == "Send this letter to the keeper?\nIs it true?"
    assert letters.tool.sent == []
    assert await letters.office.store.list_notes("task-1", SYSTEM_SCOPE, "task-1/research-1") == ()


async def test_an_allowed_call_is_carried_out_once_and_the_agent_goes_on(letters: LettersEnvironment) -> None:
    (question,) = await letters.asked(ASKING)
    outcome = await letters.leg([SUBMIT], decision(question, allowed=True))
    assert isinstance(outcome, AgentFinished)
    assert letters.tool.sent == ["the keeper"]
    assert [result.is_error for result in await letters.results()] == [False, False]
    assert len(await letters.office.store.list_notes("task-1", SYSTEM_SCOPE, "task-1/research-1")) == 1


async def test_a_refused_call_is_an_error_with_the_note_of_whoever_refused_it(letters: LettersEnvironment) -> None:
    (question,) = await letters.asked(ASKING)
    outcome = await letters.leg([SUBMIT], decision(question, allowed=False, note=f"Not with {SECRET}."))
    assert isinstance(outcome, AgentFinished)
    assert letters.tool.sent == []
    _, result = await letters.results()
    assert result.is_error
    assert "A person refused this call" in result.content
    assert f"The person says: Not with {SECRET_PLACEHOLDER}." in result.content


async def test_a_call_that_nobody_decided_on_in_time_is_not_carried_out(letters: LettersEnvironment) -> None:
    (question,) = await letters.asked(ASKING)
    await letters.leg([SUBMIT], decision(question, allowed=False, expired=True))
    assert letters.tool.sent == []
    assert (await letters.results())[1].content == EXPIRED


async def test_a_refusal_without_a_note_says_how_to_go_on(letters: LettersEnvironment) -> None:
    (question,) = await letters.asked(ASKING)
    await letters.leg([SUBMIT], decision(question, allowed=False))
    assert (await letters.results())[1].content.endswith(f"carried out. {CONTINUE_WITHOUT_IT}")


async def test_a_decision_on_another_call_lets_nothing_pass(letters: LettersEnvironment) -> None:
    (question,) = await letters.asked(ASKING)
    other = decision(question, allowed=True).replace(digest="0" * 64)
    assert isinstance(await letters.leg([], other), ApprovalRequired)
    assert letters.tool.sent == []


async def test_the_same_call_in_a_later_reply_is_asked_about_again_even_under_the_same_id(
    letters: LettersEnvironment,
) -> None:
    (question,) = await letters.asked(ASKING)
    outcome = await letters.leg([make_scripted_response(LETTER)], decision(question, allowed=True))
    assert isinstance(outcome, ApprovalRequired)
    assert outcome.questions[0].digest != question.digest
    assert letters.tool.sent == ["the keeper"]


async def test_a_leg_that_is_run_again_after_its_outcome_was_stored_asks_the_same(letters: LettersEnvironment) -> None:
    asked = await letters.asked(ASKING)
    again = await letters.leg([], number=1)
    assert isinstance(again, ApprovalRequired)
    assert again.questions == asked


async def test_only_so_many_calls_of_a_reply_are_asked_about_at_once_and_the_others_after_those(
    letters: LettersEnvironment,
) -> None:
    many = [make_tool_use("send_letter", f"c{n}", to=f"keeper {n}", text="?") for n in range(MAX_OPEN_QUESTIONS + 1)]
    first = await letters.asked(make_scripted_response(*many))
    decisions = [decision(question, allowed=True) for question in first]
    rest = await letters.leg([], *decisions)
    assert isinstance(rest, ApprovalRequired)
    assert len(first) == MAX_OPEN_QUESTIONS
    assert letters.tool.sent == []
    last = [decision(question, allowed=True) for question in rest.questions]
    assert isinstance(await letters.leg([SUBMIT], *decisions, *last), AgentFinished)
    assert letters.tool.sent == [f"keeper {n}" for n in range(MAX_OPEN_QUESTIONS + 1)]


async def test_where_nobody_is_asked_the_call_is_refused_and_the_agent_and_people_are_told(
    letters: LettersEnvironment,
) -> None:
    outcome = await letters.leg([ASKING, SUBMIT], hard=True)
    assert isinstance(outcome, AgentFinished)
    assert outcome.state.notes == (
        "The tool send_letter was not called: the call needs approval, and a task in mode soft or hard asks no one",
    )
    note, letter = await letters.results()
    assert (note.is_error, letter.is_error, letter.content) == (False, True, NO_APPROVER)


async def test_what_a_person_is_asked_is_redacted_with_names_before_it_is_in_an_outcome(
    letters: LettersEnvironment,
) -> None:
    letter = make_tool_use("send_letter", "c2", to=NAME, text=f"The key is {SECRET}.")
    (question,) = await letters.asked(make_scripted_response(letter))
    assert question.text == f"Send this letter to {NAME_PLACEHOLDER}?\nThe key is {SECRET_PLACEHOLDER}."


class GivesUp(PlainRedactor):
    """Goes on with a placeholder where a question cannot be redacted, as the platform's does after some attempts."""

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        try:
            return await super().redact(texts, destination, tenant)
        except TextRedactionError:
            return tuple(make_failed_redaction(text, "0123456789ab") for text in texts)


async def test_a_question_that_cannot_be_shown_is_not_asked_and_its_call_is_refused(
    letters: LettersEnvironment,
) -> None:
    letters.office.redactor = GivesUp({})
    letters.office.redactor.failing_at = frozenset({TextDestination.QUESTION})
    assert isinstance(await letters.leg([ASKING, SUBMIT]), AgentFinished)
    assert letters.tool.sent == []
    assert (await letters.results())[1].content == QUESTION_NOT_REDACTABLE


class FailsOnFirstBatch(GivesUp):
    """Cannot redact the questions of the first batch; what is asked later it can."""

    batches = 0

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        if destination is not TextDestination.QUESTION:
            return await super().redact(texts, destination, tenant)
        self.batches += 1
        self.failing_at = frozenset({destination} if self.batches == 1 else ())
        return await super().redact(texts, destination, tenant)


async def test_a_call_behind_questions_that_cannot_be_shown_is_asked_about_and_not_just_run(
    letters: LettersEnvironment,
) -> None:
    letters.office.redactor = FailsOnFirstBatch({})
    many = [make_tool_use("send_letter", f"c{n}", to=f"keeper {n}", text="?") for n in range(MAX_OPEN_QUESTIONS + 1)]
    (question,) = await letters.asked(make_scripted_response(*many))
    assert f"keeper {MAX_OPEN_QUESTIONS}" in question.text
    assert letters.tool.sent == []


async def test_a_compaction_while_a_call_waits_leaves_it_open(letters: LettersEnvironment) -> None:
    env, call = letters.office, LETTER.replace(id="c77")
    await env.commit_conversation([*make_conversation()[:13], Message(id="m14", role="assistant", blocks=(call,))])
    (question,) = await letters.asked()
    env.model = ScriptedModel([make_summary_response("It silted up.")])
    edit = ContextEdit(id="edit-1", agent="research-1", action="compact", requested_at=NOON)
    request = EditRequest(run=env.run_ref(), config=env.terms, limit=env.limit, edit=edit, known_records=0)
    assert (await ContextEditor(env.compactor).edit(request)).state == "done"
    assert isinstance(await letters.leg([SUBMIT], decision(question, allowed=True)), AgentFinished)
    assert letters.tool.sent == ["the keeper"]
    called, told = without_statuses(env.model.requests[0].messages)[-2:]
    assert called.tool_uses == (call,)
    assert [result.content for result in told.tool_results] == ["sent to the keeper"]
