"""Divides many documents among subagents, and collects what they hand in."""

import re
from itertools import pairwise

from waystation.adapters.offline.language import shortened
from waystation.adapters.offline.replies import Call, Reply, call
from waystation.adapters.offline.view import View, part_text

MANY_DOCUMENTS = 200
"""From so many on a research agent has subagents read them."""
PARTS = 4
PERCENT = 20
"""Of the budget, for each of them: what is left is for handing in."""
LEAST_PART = 12_000
"""Tokens: with less for each of them they would hand in, or ask for more, before they have read anything."""
GOAL_CHARACTERS = 4_000
_MORE = re.compile(r'expand with id "([^"]+)" shows all of them')
_CONTINUES = re.compile(r"continues at character ([\d,]+)")


def divided(view: View) -> bool:
    """Whether subagents have done the reading."""
    return any(not asked.failed for asked in view.calls("delegate"))


def dividing(view: View) -> Reply | None:
    """The subagents, then the rest of what they handed in. None: all of that is there, the documents are few, or nobody
    can be asked.
    """
    if divided(view):
        return _expansion(view)
    many = view.contract.last_document is None and view.contract.document_count >= MANY_DOCUMENTS
    rich = view.budget_now is None or view.budget_now * PERCENT // 100 >= LEAST_PART
    can = rich and "delegate" in view.tools and not view.exchanges and not view.gap
    return _delegation(view) if many and can else None


def _delegation(view: View) -> Reply:
    count = view.contract.document_count
    bounds = [count * part // PARTS for part in range(PARTS + 1)]
    calls = tuple(
        call(
            "delegate",
            role="research",
            title=f"Documents {first + 1} to {last}",
            goal=shortened(view.contract.goal or view.contract.question, GOAL_CHARACTERS),
            context=part_text(first + 1, last),
            budget_percent=PERCENT,
        )
        for first, last in pairwise(bounds)
    )
    return Reply(text="There are many documents: I divide them.", calls=calls)


def _expansion(view: View) -> Reply | None:
    """The rest of the results that were too long to be shown, side by side."""
    seen = {(made.text("id"), made.number("first")): made.result for made in view.calls("expand")}
    calls: list[Call] = []
    for name in (found[1] for made in view.calls("delegate") if (found := _MORE.search(made.result))):
        first = 0
        while (result := seen.get((name, first))) is not None and (more := _CONTINUES.search(result)):
            first = int(more[1].replace(",", ""))
        if (name, first) not in seen:
            calls.append(call("expand", id=name, first=first))
    return Reply(text="I read what was left out.", calls=tuple(calls)) if calls else None
