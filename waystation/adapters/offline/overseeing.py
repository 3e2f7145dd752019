"""Looking over the work: a part of the question that nothing matched is looked for once more, in other words.

A report is judged by nobody here: what code can check is checked before a model is asked, and the rest takes one that
understands.
"""

import re
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from waystation.adapters.offline.language import stems
from waystation.adapters.offline.replies import Call, Reply, call
from waystation.adapters.offline.research import NOTHING_MATCHED
from waystation.adapters.offline.view import View
from waystation.domain.value import Value
from waystation.patterns import Enclosed, proven

AGAIN = "research-again"
AGAIN_TITLE = "Look again with the whole question"
KEPT = "No step reported that nothing matched, so the plan is kept. No LLM judged this."
HOPELESS = "Nothing matched, and there are no other words or no budget to look with. No LLM judged this."
_STEP = proven(r"^- (\S+) \((\w+), (begun|not begun)(?: needs ([^)\n]*+))?\) (.*?): (.*)$", re.MULTILINE)
_FOUND = Enclosed(r'<found step="([^"]{1,200}+)"', r"</found>")
_ROOM = proven(r"budget for (\d{1,9}) new steps")


class Planned(Value):
    """A step of the plan, as a revision is shown it."""

    id: str
    begun: bool
    needs: tuple[str, ...]
    goal: str


def revision(view: View) -> Reply:
    """One research step with the whole question, where a step with other words found nothing; else the plan is kept."""
    planned = list(_planned(view.opening))
    empty = {found.opening[1] for found in _FOUND.finditer(view.opening) if f"open: {NOTHING_MATCHED}" in found.inside}
    if not empty:
        return Reply(calls=(call("revise_plan", reason=KEPT),))
    question = view.contract.question
    room = _ROOM.search(view.opening)
    waiting = [step for step in planned if not step.begun and empty & set(step.needs)]
    others = set(stems(question)) - {word for step in planned if step.id in empty for word in stems(step.goal)}
    known = AGAIN in {step.id for step in planned} or bool(view.calls("revise_plan"))
    if known or not others or not waiting or room is None or not int(room[1]):
        return Reply(calls=(call("revise_plan", reason=HOPELESS),))
    return Reply(calls=(_again(question, waiting, sorted(empty)),))


def review(view: View) -> Reply:
    """No fault beside those that code has found."""
    del view
    return Reply(calls=(call("review_report", faults=[]),))


def _again(question: str, waiting: Sequence[Planned], empty: Sequence[str]) -> Call:
    change: list[JsonValue] = [{"id": step.id, "needs": [*step.needs, AGAIN]} for step in waiting]
    return call(
        "revise_plan",
        reason=f"Nothing matched the words of {', '.join(empty)}: one more step searches with the whole question.",
        add=[{"id": AGAIN, "role": "research", "title": AGAIN_TITLE, "goal": question, "needs": []}],
        change=change,
    )


def _planned(opening: str) -> Iterator[Planned]:
    for step_id, _, stands, needs, _, goal in _STEP.findall(opening):
        yield Planned(id=step_id, begun=stands == "begun", needs=tuple(filter(None, needs.split(", "))), goal=goal)
