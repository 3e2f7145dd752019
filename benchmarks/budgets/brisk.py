"""A `ChatModel` that answers at once and always the same, so that only the platform around it is measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.task_model import FINDING, PROMPT_TOKENS, QUOTED_SENTENCE, REPLY_TOKENS, ScriptedCall
from waystation.context.transcript import Text, ToolUse
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.planning.plan import Plan, Step
from waystation.testing.doubles import make_scripted_response

READ: ScriptedCall = ("read_document", {"name": "pilot.md"})
SHORT_PLAN = Plan(
    steps=(
        Step(id="read", role="research", title="Read", goal="Read."),
        Step(id="weigh", role="analysis", title="Weigh", goal="Weigh.", needs=("read",)),
        Step(id="write", role="writing", title="Write", goal="Write.", needs=("weigh",)),
    )
)


def build_moves(reads: int) -> dict[str, Sequence[ScriptedCall]]:
    """What each agent does: the researcher reads so often before it hands in, the others hand in at once."""
    return {
        "submit_plan": [("submit_plan", SHORT_PLAN.model_dump(mode="json"))],
        "submit_findings": [*[READ] * reads, ("submit_findings", {"findings": [FINDING]})],
        "submit_analysis": [("submit_analysis", {"conclusions": [FINDING]})],
        "submit_report": [
            ("write_section", {"heading": "Pilotage", "markdown": f"{QUOTED_SENTENCE} [pilot.md:1-1]"}),
            ("submit_report", {"title": "Pilotage", "summary": QUOTED_SENTENCE}),
        ],
    }


def _nothing(request: ModelRequest, turn: int) -> None:
    pass


@dataclass
class ScriptedModel:
    """Plays all agents by their moves, each call at the same price."""

    moves: Mapping[str, Sequence[ScriptedCall]]
    opening: str = ""
    """Said with the researcher's first call."""
    heard: Callable[[ModelRequest, int], None] = _nothing
    """Told every request, with the agent's how manieth it is."""
    prompt_tokens: int = PROMPT_TOKENS
    """What every prompt but the planner's costs."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The agent's next move."""
        turn = 1 + sum(message.role == "assistant" for message in request.messages)
        self.heard(request, turn)
        ending = next(tool.name for tool in request.tools if tool.name in self.moves)
        name, arguments = self.moves[ending][turn - 1]
        said = [Text(text=self.opening)] if self.opening and (ending, turn) == ("submit_findings", 1) else []
        call = ToolUse(id=f"call-{turn}", name=name, input=arguments)
        return make_scripted_response(
            *said, call, usage=Usage(input=await self.count_tokens(request), output=REPLY_TOKENS)
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """What such a prompt costs."""
        return PROMPT_TOKENS if request.require_tool else self.prompt_tokens

    async def aclose(self) -> None:
        """Nothing is open."""
