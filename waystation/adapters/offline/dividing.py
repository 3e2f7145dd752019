"""Divides many documents among subagents where there is much to read in them, and collects what they hand in."""

import re
from itertools import pairwise

from waystation.adapters.offline.language import shortened
from waystation.adapters.offline.replies import Call, Reply, call
from waystation.adapters.offline.usage import tokens_of
from waystation.adapters.offline.view import View, part_text
from waystation.patterns import proven

MANY_DOCUMENTS = 200
"""From so many on a research agent may have subagents read them."""
PARTS = 4
PERCENT = 20
"""Of the budget, for each of them: what is left is for handing in."""
LEAST_PART = 12_000
"""Tokens, of budget and of text for each of them: with less budget they would hand in, or ask for more, before they
have read anything; with less to read, what they are told and say costs more than what they read.
"""
LISTED = 100
"""Documents whose sizes are looked at; the others are taken to be like them."""
READ_CHARACTERS = 3_000
"""Of one document at most: an agent reads its beginning, or what stands around a hit, however long it is."""
GOAL_CHARACTERS = 4_000
_MORE = proven(r'expand with id "([^"]+)" shows all of them')
_CONTINUES = proven(r"continues at character (\d[\d,]{0,15})")
_SUBAGENT, _PARTIAL = "<subagent ", 'state="partial">'
_SIZE = proven(r"^.+ \([\d,]+ lines, (\d[\d,]{0,15}) characters\)$", re.MULTILINE)


def divided(view: View) -> bool:
    """Whether subagents have done the reading."""
    return any(not asked.failed for asked in view.calls("delegate"))


def ended_early(view: View) -> tuple[str, ...]:
    """The parts of the documents that their subagents did not finish."""
    return tuple(asked.text("title") for asked in view.calls("delegate") if _is_partial(asked.result))


def _is_partial(result: str) -> bool:
    opening = result.partition("\n")[0]
    return opening.startswith(_SUBAGENT) and _PARTIAL in opening[len(_SUBAGENT) :]


def dividing(view: View) -> Reply | None:
    """A look at the sizes of many documents, the subagents, then the rest of what they handed in. None: all of that is
    there, there is little to read, or nobody can be asked.
    """
    if divided(view):
        return _expansion(view)
    listed = view.calls("list_documents")
    many = view.contract.last_document is None and view.contract.document_count >= MANY_DOCUMENTS
    rich = view.budget_now is None or view.budget_now * PERCENT // 100 >= LEAST_PART
    begins = len(view.exchanges) == len(listed) and not view.gap
    if not (many and rich and begins and {"delegate", "list_documents"} <= view.tools):
        return None
    if not listed:
        sizes = call("list_documents", first=1, count=LISTED)
        return Reply(text="There are many documents: I look how long they are.", calls=(sizes,))
    return _delegation(view) if _to_read(view, listed[0].result) >= PARTS * LEAST_PART else None


def _to_read(view: View, page: str) -> int:
    """Tokens that reading all documents takes, judged by those on a page of the list."""
    read = [min(int(size.replace(",", "")), READ_CHARACTERS) for size in _SIZE.findall(page)]
    return tokens_of(sum(read) * view.contract.document_count // max(1, len(read)))


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
    return Reply(text="There is much to read: I divide the documents.", calls=calls)


def _expansion(view: View) -> Reply | None:
    """The rest of the results that were too long to be shown, side by side."""
    seen = {(made.text("id"), made.number("first")): made.result for made in view.calls("expand")}
    calls: list[Call] = []
    for name in (found[1] for made in view.calls("delegate") if (found := _MORE.search(made.result))):
        first = 0
        # Words of others in a result may say that it continues where it began.
        while (after := _continues(seen.get((name, first), ""))) > first:
            first = after
        if (name, first) not in seen:
            calls.append(call("expand", id=name, first=first))
    return Reply(text="I read what was left out.", calls=tuple(calls)) if calls else None


def _continues(result: str) -> int:
    """At which character; 0 where it does not."""
    more = _CONTINUES.search(result)
    return int(more[1].replace(",", "")) if more else 0
