"""Plans of the offline model: one research step for each part of the question, then analysis, then writing. They are
never revised.

Reports are not judged here: code checks what it can before a model is asked, and the rest needs a model that
understands.
"""

import re

from pydantic import JsonValue

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.offline.agent_request import AgentRequestView
from waystation.plugins.offline.language import is_number_or_date_question, strip_answer_instructions, truncate_at_word
from waystation.plugins.offline.research import EXCEPTIONS_TITLE
from waystation.plugins.offline.responses import OfflineResponse, build_call

MAX_CLAUSES = 3
TITLE_WORDS = 16
_TITLE_CHARACTERS = 100
ANALYSIS_TITLE = "Weigh the findings"

_ASKING = (
    "what|which|how|who|whom|whose|when|where|why|whether|is|are|do|does|did|can|could|should|will"
    "|was|wer|wie|welche[rsmn]?|wann|wo|warum|que|qué|quel(?:le)?s?|quién|cómo|comment|où|pourquoi|quand|cuándo|dónde"
)
_WORD = compile_bounded(r"\w")
_CUT = compile_bounded(
    rf"[?？;；]++|[.。](?=\s|$)|,?(?<!\s)\s++(?:and|or|und|et|y)\s++(?=(?:{_ASKING})\b)|,\s*+(?=(?:{_ASKING})\b)",
    re.IGNORECASE,
)


def split_clauses(question: str) -> tuple[str, ...]:
    """Split a question into at most three parts; further parts join the last one."""
    parts = [
        part
        for piece in _CUT.split(strip_answer_instructions(question))
        if _WORD.search(part := " ".join(piece.split()).strip(" ,"))
    ]
    if len(parts) > MAX_CLAUSES:
        parts = [*parts[: MAX_CLAUSES - 1], "; ".join(parts[MAX_CLAUSES - 1 :])]
    return tuple(part[0].upper() + part[1:] for part in parts)


def build_plan_turn(view: AgentRequestView) -> OfflineResponse:
    """Build the plan of a question; with only one research step if a plan was refused before."""
    question = view.brief.question
    research = [("Find what answers it", question)] if view.calls("submit_plan") or view.gap else _research(question)
    ids = [f"research-{number}" for number in range(1, len(research) + 1)]
    steps: list[JsonValue] = [
        _step(step_id, "research", title, goal, []) for step_id, (title, goal) in zip(ids, research, strict=True)
    ]
    steps.append(
        _step("analysis", "analysis", ANALYSIS_TITLE, f"Weigh all findings of the research, to answer: {question}", ids)
    )
    steps.append(
        _step("writing", "writing", "Write the report", f"Write the report on: {question}", [*ids, "analysis"])
    )
    return OfflineResponse(calls=(build_call("submit_plan", steps=steps),))


def _research(question: str) -> list[tuple[str, str]]:
    """Return title and goal of each research step."""
    parts = split_clauses(question)
    if len(parts) > 1:
        return [(_title(part), f"{part}?") for part in parts]
    direct = [("Direct evidence", question)]
    return (
        direct
        if is_number_or_date_question(question)
        else [*direct, (EXCEPTIONS_TITLE, f"{EXCEPTIONS_TITLE}: {question}")]
    )


def _title(clause: str) -> str:
    return truncate_at_word(" ".join(clause.split()[:TITLE_WORDS]), _TITLE_CHARACTERS).rstrip(" ,;:")


def _step(step_id: str, role: str, title: str, goal: str, needs: list[str]) -> JsonValue:
    return {"id": step_id, "role": role, "title": title, "goal": goal, "needs": [*needs]}


NOTHING_ANSWERS = "Nothing that was found in the documents answers the question."
PERHAPS_NOTHING = "perhaps nothing in the documents answers the question."
"""End of the sentence at the top of a report whose quotations are far from the question."""
KEPT = (
    "The plan stays unchanged, because a step that finds little searches again for all words of the question. No LLM "
    "decided this."
)


def build_revision_turn(_: AgentRequestView) -> OfflineResponse:
    """Keep the plan."""
    return OfflineResponse(calls=(build_call("revise_plan", reason=KEPT),))


def build_review_turn(view: AgentRequestView) -> OfflineResponse:
    """Add no finding to those of code, except that nothing answers the question if the report says so."""
    draft = view.opening.rpartition("<draft>")[2].splitlines()
    said = [line for line in draft if line == NOTHING_ANSWERS or line.endswith(PERHAPS_NOTHING)]
    faults: list[JsonValue] = [{"kind": "uncovered", "text": line} for line in said[:1]]
    return OfflineResponse(calls=(build_call("review_report", faults=faults),))
