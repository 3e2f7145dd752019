"""A model that asks a person instead of working gets the answer to go on, and the report lists its question."""

import pytest

from tests.agents.test_agent_loop import IDLE, READ, SUBMIT
from tests.reports.test_publisher import PROGRESS, publish_report
from tests.support.agent_environment import (
    NAME,
    SECRET,
    SECRET_PLACEHOLDER,
    AgentEnvironment,
)
from waystation.agents.leg import AgentFinished
from waystation.agents.person_questions import (
    MAX_QUESTION_CHARACTERS,
    NO_ONE_ANSWERS,
    QUESTIONS_NOTE,
    PersonQuestion,
    extract_person_question,
    find_person_questions,
    merge_person_questions,
)
from waystation.context.history import build_rewind_record, with_record
from waystation.context.transcript import Message, Text, ToolUse
from waystation.models.ports import ModelResponse
from waystation.reports.report import extract_answer
from waystation.reports.sections import QUESTIONS
from waystation.testing.doubles import ScriptedModel, make_scripted_response

ASK = "Which harbour do you mean, the old one or the new one?"


def say(text: str) -> Message:
    return Message(id="m2", role="assistant", blocks=(Text(text=text),))


def reply(text: str) -> ModelResponse:
    return make_scripted_response(Text(text=text))


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (ASK, ASK),
        (f"I have read both documents. {ASK}", ASK),
        (f"{ASK} I will continue as soon as I know.", ASK),
        ("**Which year should I use?**", "Which year should I use?"),
        ("Before I start:\n1. Which year?\n2. Which currency?\n\nThanks!", "Which year? Which currency?"),
        ("Please clarify which contract is meant.", "Please clarify which contract is meant."),
        ("Could you share the missing annex.", "Could you share the missing annex."),
        ("Let me know how to proceed.", "Let me know how to proceed."),
        ("Welchen Vertrag meinen Sie?", "Welchen Vertrag meinen Sie?"),
        ("Bitte nennen Sie das Jahr.", "Bitte nennen Sie das Jahr."),
        ("Veuillez préciser l'année.", "Veuillez préciser l'année."),
        ("どの港ですか？", "どの港ですか？"),
    ],
)
def test_a_reply_that_ends_with_a_question_or_a_request_asks_a_person(said: str, asked: str) -> None:
    assert extract_person_question(say(said)) == asked


@pytest.mark.parametrize(
    "said",
    [
        "Let me think.",
        "",
        "Why did it silt up? The keeper's log answers that. I read it next. Then I submit.",
        "The clause says how notice is given. I will clarify this in the detail.",
        "I look for the answer to: why did it silt up?",
    ],
)
def test_thinking_aloud_asks_nothing(said: str) -> None:
    assignment = "<question>\nI look for the answer to: Why did it silt up?\n</question>"
    assert extract_person_question(say(said), assignment) == ""


def test_only_a_reply_without_a_tool_call_asks() -> None:
    call = ToolUse(id="c1", name="read_document", input={"name": "harbour.md"})
    assert extract_person_question(say(ASK).replace(blocks=(Text(text=ASK), call))) == ""
    assert extract_person_question(say(ASK).replace(role="user")) == ""


def test_a_long_question_is_cut() -> None:
    asked = extract_person_question(say(" ".join(["Is it this one?"] * 200)))
    assert len(asked) <= MAX_QUESTION_CHARACTERS
    assert asked.endswith(" …")


def test_a_question_of_several_agents_is_listed_once() -> None:
    asked = {"research-1": (ASK,), "research-2": (ASK.upper(), "And when?"), "research-1.1": ()}
    assert merge_person_questions(asked) == (
        PersonQuestion(text=ASK, agents=("research-1", "research-2")),
        PersonQuestion(text="And when?", agents=("research-2",)),
    )


async def test_a_model_that_asks_is_told_at_once_to_state_its_assumption_and_go_on(env: AgentEnvironment) -> None:
    outcome = await env.run_leg(ScriptedModel([reply(ASK), READ, IDLE, SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    assert not outcome.partial
    assert outcome.state.notes == (QUESTIONS_NOTE,)
    talk = await env.load_messages()
    assert talk[2].text == f"<platform>{NO_ONE_ANSWERS} When you are done, submit with submit_findings.</platform>"
    assert talk[6].text == "<platform>Go on. When you are done, submit with submit_findings.</platform>"
    assert find_person_questions(await env.load_transcript()) == (ASK,)


async def test_the_note_outlives_the_attempt_that_saw_the_question(env: AgentEnvironment) -> None:
    env.terms = env.terms.replace(turn_limit=1)
    await env.run_leg(ScriptedModel([reply(ASK)]))
    later = await env.run_leg(ScriptedModel([SUBMIT]), number=2)
    assert later.state.notes == (QUESTIONS_NOTE,)


async def test_a_rewind_before_the_question_withdraws_it(env: AgentEnvironment) -> None:
    await env.run_leg(ScriptedModel([reply(ASK), SUBMIT]))
    transcript = await env.load_transcript()
    assert find_person_questions(transcript) == (ASK,)
    rewound = with_record(transcript, build_rewind_record(transcript, "m1", "r1", keep=True))
    assert find_person_questions(rewound) == ()


async def test_the_report_lists_what_agents_asked_redacted_and_outside_the_answer(env: AgentEnvironment) -> None:
    for number, step_id in enumerate(("research-1", "research-2"), 1):
        asks = f"Is {NAME} the owner of the key {SECRET}? [x](javascript:1)?" if number == 1 else ASK
        await env.run_leg(ScriptedModel([reply(asks), reply(asks), SUBMIT]), step_id=step_id)
    _, report = await publish_report(env, PROGRESS.replace(notes=(QUESTIONS_NOTE,)))
    listed = report.partition(f"{QUESTIONS}\n")[2].partition("\n\n## ")[0]
    assert listed.splitlines()[-2:] == [
        f"- research-1: Is {NAME} the owner of the key {SECRET_PLACEHOLDER}? (x)(javascript:1)?",
        f"- research-2: {ASK}",
    ]
    assert ASK not in extract_answer(report)


async def test_a_report_without_questions_has_no_section_for_them(env: AgentEnvironment) -> None:
    await env.run_leg(ScriptedModel([IDLE, SUBMIT]))
    _, report = await publish_report(env)
    assert QUESTIONS not in report
