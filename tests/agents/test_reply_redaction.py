"""What a model writes of its own accord is kept as everything else is: without private values."""

from tests.support.agent_environment import SECRET, SECRET_PLACEHOLDER, TASK, AgentEnvironment, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.leg import AgentFinished
from waystation.agents.redaction import redact_reply
from waystation.context.transcript import Message, RedactedThinking, Text, Thinking, ToolUse
from waystation.testing.doubles import PlainRedactor, ScriptedModel, make_scripted_response

NOTED = make_tool_use("take_note", "c1", text=f"Her key is {SECRET}.", document="keeper.md", first_line=2, last_line=2)
FOUND = make_tool_use(
    "submit_findings", "c2", findings=[{"claim": f"It is {SECRET}.", "citations": ["[keeper.md:2-2]"]}]
)


async def test_words_and_arguments_are_kept_without_private_values(env: AgentEnvironment) -> None:
    said = make_scripted_response(Text(text=f"I know {SECRET}."), NOTED)
    assert isinstance(await env.run_leg(ScriptedModel([said, make_scripted_response(FOUND)])), AgentFinished)
    transcript = await env.load_transcript()
    assert SECRET not in transcript.model_dump_json()
    assert f"I know {SECRET_PLACEHOLDER}." in transcript.model_dump_json()
    (note,) = await env.store.list_notes(TASK, SYSTEM_SCOPE)
    assert (note.text, note.document) == (f"Her key is {SECRET_PLACEHOLDER}.", "keeper.md")
    deliverable = await env.store.get_deliverable(f"{TASK}/research-1", SYSTEM_SCOPE)
    assert deliverable is not None
    assert f"It is {SECRET_PLACEHOLDER}." in deliverable.model_dump_json()


async def test_strings_at_any_depth_are_replaced_and_everything_else_stays_in_its_place() -> None:
    redactor = PlainRedactor({SECRET: SECRET_PLACEHOLDER})
    blocks = (
        Thinking(thinking=f"signed {SECRET}", signature="s"),
        RedactedThinking(data="sealed"),
        Text(text="one"),
        ToolUse(id=SECRET, name="n", input={"a": [1, {"b": SECRET, SECRET: None}], "c": f"x{SECRET}", "d": True}),
        Text(text=f"two {SECRET}"),
    )
    kept, redacted = await redact_reply(blocks, redactor, "t")
    assert kept[:3] == blocks[:3]
    assert kept[3] == blocks[3].replace(
        input={
            "a": [1, {"b": SECRET_PLACEHOLDER, SECRET_PLACEHOLDER: None}],
            "c": f"x{SECRET_PLACEHOLDER}",
            "d": True,
        }
    )
    assert kept[4] == Text(text=f"two {SECRET_PLACEHOLDER}")
    assert sum(len(one.spans) for one in redacted) == 4
    assert Message(id="m1", role="assistant", blocks=kept).text == f"one\ntwo {SECRET_PLACEHOLDER}"
