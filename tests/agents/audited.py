"""A research agent with names of things in its conversation, some of which its summary will lose."""

from collections.abc import Sequence

from tests.agents.full_context import summary
from tests.agents.office import NAME, Office
from tests.unit.histories import calls, prose, research, results
from waystation.context.transcript import Message, Text, build_user_message
from waystation.models.ports import ModelResponse

DEMAND = "Never touch config/prod.yaml before Friday."


def conversation() -> Sequence[Message]:
    """Thirteen turns. In the third the user demands something, in the fifth a log is read."""
    turns = research(13, 1_300, tool="recall")
    turns[5] = results("m7", Text(text=DEMAND), c3=f"3 {prose(1_300)}")
    turns[17] = results("m19", Text(text="Look at the keeper, too."), c9=f"9 {prose(1_300)}")
    codes = " ".join(f"E{number}" for number in range(4_000, 4_160))
    log = f"{NAME} kept the harbour, https://harbour.example/logs/1811 has it.\nIt failed with {codes}. "
    turns[8:10] = calls("m10", "c5", tool="recall"), results("m11", c5=f"{log}\n{prose(400)}")
    return (build_user_message("m1", "Why did it silt up?"), *turns)


def told() -> ModelResponse:
    """What the model that condenses says."""
    return summary(f"The keeper {NAME} let it silt up: E4000, see https://harbour.example/logs/1811.")


async def talked(office: Office) -> None:
    """Let the research agent have had this conversation."""
    await office.said(conversation())
