"""What agents said and were told, as `waystation transcript … --json` prints it."""

from typing import NamedTuple

from pydantic import TypeAdapter

from tests.end_to_end.shell import Shell
from waystation.context.audit import AnnotatedTranscript
from waystation.context.transcript import Message


class ToolCallResult(NamedTuple):
    """A call and its result."""

    tool: str
    text: str
    is_error: bool


def load_messages(shell: Shell, task: str, agent: str) -> tuple[Message, ...]:
    """The messages of an agent, in order."""
    printed = shell.run_json("transcript", task, "--agent", agent)
    return TypeAdapter(AnnotatedTranscript).validate_python(printed).messages


def load_tool_calls(shell: Shell, task: str, agent: str) -> list[ToolCallResult]:
    """The calls of an agent that have results, in order."""
    messages = load_messages(shell, task, agent)
    results = {result.tool_use_id: result for message in messages for result in message.tool_results}
    calls = [call for message in messages for call in message.tool_uses if call.id in results]
    return [ToolCallResult(call.name, results[call.id].content, results[call.id].is_error) for call in calls]
