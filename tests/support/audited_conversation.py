"""A conversation of a research agent with names of things, some of which its summary will lose."""

from collections.abc import Sequence

from tests.support.agent_environment import NAME, AgentEnvironment
from tests.support.conversations import make_call_message, make_filler_text, make_research_turns, make_result_message
from tests.support.full_context import make_summary_response
from waystation.context.transcript import Message, Text, build_user_message
from waystation.models.ports import ModelResponse

DEMAND = "Never touch config/prod.yaml before Friday."


def make_audited_conversation() -> Sequence[Message]:
    """Make thirteen turns. In the third the user demands something, in the fifth a log is read."""
    turns = make_research_turns(13, 1_300, tool="recall")
    turns[5] = make_result_message("m7", Text(text=DEMAND), c3=f"3 {make_filler_text(1_300)}")
    turns[17] = make_result_message("m19", Text(text="Look at the keeper, too."), c9=f"9 {make_filler_text(1_300)}")
    codes = " ".join(f"E{number}" for number in range(4_000, 4_160))
    log = f"{NAME} kept the harbour, https://harbour.example/logs/1811 has it.\nIt failed with {codes}. "
    turns[8:10] = (
        make_call_message("m10", "c5", tool="recall"),
        make_result_message("m11", c5=f"{log}\n{make_filler_text(400)}"),
    )
    return (build_user_message("m1", "Why did it silt up?"), *turns)


def make_audited_summary() -> ModelResponse:
    """Make the reply of the summarising model."""
    return make_summary_response(f"The keeper {NAME} let it silt up: E4000, see https://harbour.example/logs/1811.")


async def commit_audited_conversation(env: AgentEnvironment) -> None:
    """Commit this conversation to the research agent's transcript."""
    await env.commit_conversation(make_audited_conversation())
