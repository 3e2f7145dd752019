"""A crew whose plan is revised and whose report is reviewed, as tests want it."""

from dataclasses import dataclass, field

from pydantic import JsonValue

from tests.crew import MOVES, PROMPT_TOKENS, REPLY_TOKENS, SAID, Call, Crew, Move, terms
from waystation.context.transcript import ToolUse
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.tasks.task import TaskTerms
from waystation.testing import make_scripted_response

KEPT: Move = ("revise_plan", {"reason": "Nothing new was found."})
ADDED: Move = (
    "revise_plan",
    {
        "reason": "Nobody has read about fog.",
        "add": [{"id": "fog", "role": "research", "title": "Fog", "goal": "Read about fog."}],
        "change": [{"id": "weigh", "needs": ["harbours", "tides", "fog"]}],
    },
)
IMPOSSIBLE: Move = ("revise_plan", {"reason": "Why not.", "drop": ["harbours"]})
FAULT: JsonValue = {"kind": "uncovered", "text": "It does not say how deep the bar is."}
GOOD: Move = ("review_report", {"faults": []})
FAULTY: Move = ("review_report", {"faults": [FAULT]})
MENDING: list[Move] = [
    ("write_section", {"heading": "Depths, harbours and tides", "markdown": f"{SAID} [pilot.md:2-2]"}),
    ("submit_report", {"title": "Pilotage", "summary": SAID}),
]


def overseen(revisions: int = 1, reviews: int = 1, given: TaskTerms | None = None) -> TaskTerms:
    """A task's terms with oversight."""
    return (given or terms()).replace(revisions=revisions, reviews=reviews)


@dataclass
class OverseenCrew(Crew):
    """Each revision and each review is one of these moves, in order; the last of them again where there are more."""

    revisions: list[Move] = field(default_factory=lambda: [KEPT])
    reviews: list[Move] = field(default_factory=lambda: [GOOD])
    asked: list[ModelRequest] = field(default_factory=list[ModelRequest])
    """What revisions, reviews and the writer that mends were sent."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """As the crew does it, beside what is overseen."""
        offered = {tool.name for tool in request.tools}
        if "revise_plan" in offered:
            return await self._overseen(request, "revision", self.revisions)
        if "review_report" in offered:
            return await self._overseen(request, "review", self.reviews)
        turn = 1 + sum(message.role == "assistant" for message in request.messages)
        mending = turn - len(MOVES["submit_report"])
        if "submit_report" in offered and mending > 0:
            self.asked.append(request)
            return await self._said(Call("write", turn), MENDING[(mending - 1) % len(MENDING)])
        return await super().complete(request)

    async def _overseen(self, request: ModelRequest, what: str, moves: list[Move]) -> ModelResponse:
        self.asked.append(request)
        number = 1 + sum(call.step == what for call in self.calls)
        return await self._said(Call(what, number), moves[min(number, len(moves)) - 1])

    async def _said(self, call: Call, move: Move) -> ModelResponse:
        self.calls.append(call)
        await self.before(call)
        name, arguments = move
        use = ToolUse(id=f"call-{call.step}-{call.turn}", name=name, input=arguments)
        return make_scripted_response(use, usage=Usage(input=PROMPT_TOKENS, output=REPLY_TOKENS))
