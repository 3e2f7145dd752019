"""The tool that hands a part of the work to a subagent, and shows what came back of it."""

from collections.abc import Sequence

from pydantic import Field

from waystation.agents.tools.results import ResultLines, results_of
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool
from waystation.domain.citations import citations_in
from waystation.domain.delegation import HandedBack
from waystation.domain.foreign_text import tagged
from waystation.domain.plan import Role
from waystation.domain.projection import FIRST, SOON
from waystation.ports import WorkStore

TITLE_CHARACTERS = 60
SOURCES = 20


class DelegateInput(ToolInput):
    """One subagent."""

    role: Role
    title: str = Field(min_length=1, max_length=TITLE_CHARACTERS, description="A few words for the people who watch.")
    goal: str = Field(min_length=1, max_length=4_000, description="What it is to find out, and what counts as done.")
    context: str = Field(
        default="",
        max_length=8_000,
        description="What it has to know. It sees the task and the documents, and nothing of your conversation.",
    )
    budget_percent: int = Field(default=20, ge=1, le=100, description="Of what you have left. The rest comes back.")


class Delegate(TypedTool[DelegateInput]):
    """A call of it ends the leg; the next leg finds the subagent's result."""

    name = "delegate"
    description = (
        "Hands a part of your work to a subagent with its own context and a part of your budget. Call it several times "
        "in one reply and they work side by side. You get back what each found, with its sources."
    )
    permission = "delegate"
    urgency = {"executing": FIRST, "reflecting": SOON}
    input_model = DelegateInput

    def __init__(self, work: WorkStore) -> None:
        self._work = work

    async def run(self, arguments: DelegateInput, at: CallSite) -> str:
        """What came back, cut to half a page; `expand` shows the whole."""
        back = next((back for back in at.handed_back if back.call_id == at.call_id), None)
        if back is None:
            raise ToolRefused("This subagent was not started. Do this part yourself.")
        handed_in = await results_of(self._work, at.run.reader, back.id)
        return presented(back, arguments, handed_in, at.page_characters // 2)


def presented(back: HandedBack, asked: DelegateInput, handed_in: ResultLines, characters: int) -> str:
    """What a subagent came to, in its tag: what stayed open first, as many lines as have room."""
    state = "partial" if back.partial else "done"
    found = handed_in.claims
    names = dict.fromkeys(citation.document for line in found for citation in citations_in(line))
    head = [
        *([f"It ended early: {back.reason}"] if back.reason else []),
        f"{len(found)} results" + (f" from {', '.join([*names][:SOURCES])}" if names else ""),
    ]
    attributes = {"id": back.id, "role": asked.role, "title": asked.title, "state": state}
    framed = len(tagged("subagent", *head, **attributes))
    shown, rest = _fitting([*handed_in.left_open, *found], characters - framed)
    more = [f'{rest} more lines are not shown here: expand with id "{back.id}" shows all of them.'] if rest else []
    return tagged("subagent", *head, *shown, *more, **attributes)


def _fitting(lines: Sequence[str], characters: int) -> tuple[list[str], int]:
    """As many lines as fit, and how many are left."""
    shown: list[str] = []
    for line in (" ".join(line.split()) for line in lines):
        characters -= len(line) + 1
        if characters < 0:
            break
        shown.append(line)
    return shown, len(lines) - len(shown)
