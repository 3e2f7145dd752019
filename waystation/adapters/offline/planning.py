"""Plans: one research step for each part of the question, then analysis, then writing."""

import re

from pydantic import JsonValue

from waystation.adapters.offline.language import shortened
from waystation.adapters.offline.replies import Reply, call
from waystation.adapters.offline.view import View
from waystation.patterns import proven

MOST_CLAUSES = 3
TITLE_WORDS = 10
TITLE_CHARACTERS = 60
ANALYSIS_TITLE = "Weigh the findings"

_ASKING = (
    "what|which|how|who|whom|whose|when|where|why|whether|is|are|do|does|did|can|could|should|will"
    "|was|wer|wie|welche[rsmn]?|wann|wo|warum|que|qué|quel(?:le)?s?|quién|cómo|comment|où|pourquoi|quand|cuándo|dónde"
)
_WORD = proven(r"\w")
_CUT = proven(
    rf"[?？;；]++|[.。](?=\s|$)|,?(?<!\s)\s++(?:and|or|und|et|y)\s++(?=(?:{_ASKING})\b)|,\s*+(?=(?:{_ASKING})\b)",
    re.IGNORECASE,
)


def clauses(question: str) -> tuple[str, ...]:
    """The parts of a question, at most three; what is over joins the last one."""
    parts = [part for piece in _CUT.split(question) if _WORD.search(part := " ".join(piece.split()).strip(" ,"))]
    if len(parts) > MOST_CLAUSES:
        parts = [*parts[: MOST_CLAUSES - 1], "; ".join(parts[MOST_CLAUSES - 1 :])]
    return tuple(part[0].upper() + part[1:] for part in parts)


def plan(view: View) -> Reply:
    """The plan of a question; one research step only where a plan was refused before."""
    question = view.contract.question
    research = [("Find what answers it", question)] if view.calls("submit_plan") or view.gap else _research(question)
    ids = [f"research-{number}" for number in range(1, len(research) + 1)]
    steps: list[JsonValue] = [
        _step(step_id, "research", title, goal, []) for step_id, (title, goal) in zip(ids, research, strict=True)
    ]
    steps.append(
        _step("analysis", "analysis", ANALYSIS_TITLE, f"Weigh the findings of all research steps: {question}", ids)
    )
    steps.append(
        _step("writing", "writing", "Write the report", f"Write the report on: {question}", [*ids, "analysis"])
    )
    return Reply(calls=(call("submit_plan", steps=steps),))


def _research(question: str) -> list[tuple[str, str]]:
    """Title and goal of each research step."""
    parts = clauses(question)
    if len(parts) > 1:
        return [(_title(part), f"{part}?") for part in parts]
    return [("Direct evidence", question), ("Exceptions, limits and gaps", f"Exceptions, limits and gaps: {question}")]


def _title(clause: str) -> str:
    return shortened(" ".join(clause.split()[:TITLE_WORDS]), TITLE_CHARACTERS).rstrip(" ,;:")


def _step(step_id: str, role: str, title: str, goal: str, needs: list[str]) -> JsonValue:
    return {"id": step_id, "role": role, "title": title, "goal": goal, "needs": [*needs]}
