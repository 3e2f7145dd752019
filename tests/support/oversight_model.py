"""A scripted task model whose plan is revised and whose report is reviewed."""

from dataclasses import dataclass, field

from pydantic import JsonValue

from tests.support.task_model import (
    PROMPT_TOKENS,
    QUOTED_SENTENCE,
    REPLY_TOKENS,
    SCRIPTED_CALLS,
    ModelCall,
    ScriptedCall,
    ScriptedTaskModel,
    make_task_config,
)
from waystation.context.transcript import ToolUse
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.tasks.task import TaskConfig
from waystation.testing.doubles import make_scripted_response

KEEP_PLAN_CALL: ScriptedCall = ("revise_plan", {"reason": "Nothing new was found."})
ADD_STEP_CALL: ScriptedCall = (
    "revise_plan",
    {
        "reason": "Nobody has read about fog.",
        "add": [{"id": "fog", "role": "research", "title": "Fog", "goal": "Read about fog."}],
        "change": [{"id": "weigh", "needs": ["harbours", "tides", "fog"]}],
    },
)
INVALID_REVISION_CALL: ScriptedCall = ("revise_plan", {"reason": "Why not.", "drop": ["harbours"]})
REVIEW_FAULT: JsonValue = {"kind": "uncovered", "text": "It does not say how deep the bar is."}
PASS_REVIEW_CALL: ScriptedCall = ("review_report", {"faults": []})
FAIL_REVIEW_CALL: ScriptedCall = ("review_report", {"faults": [REVIEW_FAULT]})
CORRECTION_CALLS: list[ScriptedCall] = [
    ("write_section", {"heading": "Depths, harbours and tides", "markdown": f"{QUOTED_SENTENCE} [pilot.md:1-1]"}),
    ("submit_report", {"title": "Pilotage", "summary": QUOTED_SENTENCE}),
]


def with_oversight(revisions: int = 1, reviews: int = 1, given: TaskConfig | None = None) -> TaskConfig:
    """Return a task configuration with oversight."""
    return (given or make_task_config()).replace(revisions=revisions, reviews=reviews)


@dataclass
class OversightTaskModel(ScriptedTaskModel):
    """Makes each revision, review and judgement one of these moves, in order; the last one is repeated."""

    revisions: list[ScriptedCall] = field(default_factory=lambda: [KEEP_PLAN_CALL])
    reviews: list[ScriptedCall] = field(default_factory=lambda: [PASS_REVIEW_CALL])
    judgements: list[ScriptedCall] = field(default_factory=list[ScriptedCall])
    written: str = ""
    """Text of the report's only section; empty: that of the scripted task model."""
    asked: list[ModelRequest] = field(default_factory=list[ModelRequest])
    """Requests of revisions, reviews and the writer that repairs a report."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Reply as the scripted task model does, and to oversight."""
        offered = {tool.name for tool in request.tools}
        if "revise_plan" in offered:
            return await self._overseen(request, "revision", self.revisions)
        if "review_report" in offered:
            return await self._overseen(request, "review", self.reviews)
        if "judge_sentences" in offered:
            return await self._overseen(request, "judge", self.judgements)
        turn = 1 + sum(message.role == "assistant" for message in request.messages)
        if "submit_report" in offered and turn == 1 and self.written:
            section: ScriptedCall = ("write_section", {"heading": "Pilotage", "markdown": self.written})
            return await self._said(ModelCall("write", turn), section)
        mending = turn - len(SCRIPTED_CALLS["submit_report"])
        if "submit_report" in offered and mending > 0:
            self.asked.append(request)
            return await self._said(ModelCall("write", turn), CORRECTION_CALLS[(mending - 1) % len(CORRECTION_CALLS)])
        return await super().complete(request)

    async def _overseen(self, request: ModelRequest, what: str, moves: list[ScriptedCall]) -> ModelResponse:
        self.asked.append(request)
        number = 1 + sum(call.step == what for call in self.calls)
        return await self._said(ModelCall(what, number), moves[min(number, len(moves)) - 1])

    async def _said(self, call: ModelCall, move: ScriptedCall) -> ModelResponse:
        self.calls.append(call)
        await self.before(call)
        name, arguments = move
        use = ToolUse(id=f"call-{call.step}-{call.turn}", name=name, input=arguments)
        return make_scripted_response(use, usage=Usage(input=PROMPT_TOKENS, output=REPLY_TOKENS))
