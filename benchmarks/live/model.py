"""The scripted model: planning, three researchers, an analyst, a writer, a reviewer, and summaries.

It works as a live Claude does: it thinks before it calls tools, searches and reads in parallel, page by page, takes
notes next to the next read, and writes section by section. It depends only on names of tools and their results, never
on the text of prompts and status messages, so that it works the same with any checkout.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Literal, NamedTuple

from pydantic import JsonValue

from benchmarks.live.documents import BYTES_PER_TOKEN, Document

Body = dict[str, JsonValue]
Role = Literal["research", "analysis", "writing", "plan", "review", "summary"]
ROLES: tuple[Role, ...] = ("plan", "research", "analysis", "writing", "review", "summary")
_ROLE_BY_TOOL: Mapping[str, Role] = {
    "submit_plan": "plan", "revise_plan": "plan", "review_report": "review",
    "submit_findings": "research", "submit_analysis": "analysis", "submit_report": "writing",
}  # fmt: skip
READS = "read_document"
PARTS = ("quays", "channels", "stores")
"""Ids of the research steps: each reads its part of the documents."""
ANALYSIS, WRITING = "weigh", "write"

SUMMARY_TOKENS = 1_800
_AT_ONCE = 2
"""Documents that a researcher reads side by side."""
_NOTES_A_PAGE = 2
_SECTIONS, _PARAGRAPHS, _SENTENCES = 6, 5, 4
_CHECKS = 3
"""Places that the analysis reads again before it concludes."""
_HITS = 5
_QUERIES = (
    "crane rated tonnes", "draught channel silt", "shore supply megawatt", "cold store containers",
    "insured inspections", "tidal gate repair",
)  # fmt: skip
_NUMBERED = re.compile(r"^\s*(\d+)\|", re.MULTILINE)
_STEP = re.compile(r'<step id="([^"]+)"')
_PROSE = (
    "the two surveys differ here so the older figure needs a second source before it can carry a conclusion and the "
    "next page may settle which of them the board relied on when it put the extension off until the channel was deeper"
)


class Call(NamedTuple):
    """A call of a tool."""

    name: str
    input: Body


@dataclass(frozen=True)
class ScriptedTurn:
    """One reply: thinking of so many tokens, a sentence, and calls.

    `calls` takes how often this reply was cut by `max_tokens` so far, since a model writes less then.
    """

    thinking: int
    calls: Callable[[int], Sequence[Call]]
    says: str = ""


Script = Generator[ScriptedTurn, Sequence[str], None]
"""An agent's replies, one after another; takes the results of each reply's calls, in their order."""


def detect_role(body: Body) -> Role:
    """Whose request it is, by the tools that it offers; one without tools asks for a summary."""
    names = tool_names(body)
    found: Role | None = next((role for tool, role in _ROLE_BY_TOOL.items() if tool in names), None)
    return found or "summary"


def tool_names(body: Body) -> tuple[str, ...]:
    """Names of the tools of a request."""
    tools = body.get("tools")
    listed = tools if isinstance(tools, list) else []
    return tuple(str(tool.get("name")) for tool in listed if isinstance(tool, dict))


def build_filler(tokens: int, salt: int = 0) -> str:
    """Prose of about so many tokens."""
    words = cycle(_PROSE.split())
    length = tokens * BYTES_PER_TOKEN
    return " ".join(islice(words, salt % 40, salt % 40 + length // 4))[:length].rstrip()


@dataclass
class ScriptedModel:
    """All agents of one task. Keeps what each is at."""

    documents: Sequence[Document]
    _taken: list[str] = field(default_factory=list[str])

    def one_shot(self, role: Role, body: Body) -> ScriptedTurn:
        """The reply to a request for a plan, a revision, a review or a summary."""
        names = tool_names(body)
        match role:
            case "plan" if "submit_plan" in names:
                steps: JsonValue = [*self._plan()]
                return _fixed(600, Call("submit_plan", {"steps": steps}))
            case "plan":
                return _fixed(500, Call("revise_plan", {"reason": "The findings answer what the plan asks."}))
            case "review":
                return _fixed(900, Call("review_report", {"faults": []}))
            case _:
                return ScriptedTurn(400, lambda _: (), says=build_filler(SUMMARY_TOKENS))

    def script(self, role: Role, contract: str) -> Script:
        """What an agent does from its first turn on. `contract`: its first message."""
        match role:
            case "research":
                return self._research(self._part(contract))
            case "analysis":
                return self._analysis()
            case _:
                return self._writing()

    def _plan(self) -> list[Body]:
        each = len(self.documents) // len(PARTS)
        research: list[Body] = [
            {"id": part, "role": "research", "title": f"What limits the {part}",
             "goal": f"Find what the reports say about {part}: figures, causes, contradictions. About {each} reports."}
            for part in PARTS
        ]  # fmt: skip
        return [
            *research,
            {"id": ANALYSIS, "role": "analysis", "title": "Weigh the figures", "needs": [*PARTS],
             "goal": "Weigh the findings against each other, and say which figures hold."},
            {"id": WRITING, "role": "writing", "title": "Write the report", "needs": [ANALYSIS],
             "goal": "Write what limits the harbours, with every figure cited."},
        ]  # fmt: skip

    def _part(self, contract: str) -> Sequence[Document]:
        """The documents of a researcher: those of its step, or of the first part that nobody has."""
        found = _STEP.search(contract)
        named = found[1] if found and found[1] in PARTS else ""
        free = [part for part in PARTS if part not in self._taken]
        part = named or (free[0] if free else PARTS[0])
        self._taken.append(part)
        return self.documents[PARTS.index(part) :: len(PARTS)]

    def _research(self, documents: Sequence[Document]) -> Script:
        yield _fixed(500, Call("list_documents", {}), _search(1), _search(2))
        notes: list[Call] = []
        cited: list[tuple[Document, int]] = []
        for start in range(0, len(documents), _AT_ONCE):
            at = dict.fromkeys(documents[start : start + _AT_ONCE], 1)
            while at:
                reads = [Call(READS, {"name": document.name, "first_line": line}) for document, line in at.items()]
                # Notes of the page before stand beside the next reads, as a model does that calls in parallel.
                results = yield _fixed(320, *reads, *notes)
                notes, at, read = _after_reading(at, results)
                cited += read
            yield _fixed(360, *notes, _search(start))
            notes = []
        findings: list[JsonValue] = [_finding(document, line) for document, line in cited[:16]]
        yield _fixed(1_000, Call("submit_findings", {"findings": findings, "open_questions": [build_filler(25)]}))

    def _analysis(self) -> Script:
        yield _fixed(500, *(Call("read_findings", {"step": part}) for part in PARTS))
        for number, document in enumerate(self.documents[:_CHECKS]):
            line = max(1, len(document.lines) // 2)
            last = min(len(document.lines), line + 25)
            reads = [Call(READS, {"name": document.name, "first_line": line, "last_line": last})]
            yield _fixed(500, *reads, _search(number))
        conclusions: list[JsonValue] = [_finding(document, 2) for document in self.documents[:12]]
        analysis: Body = {"conclusions": conclusions, "contradictions": [build_filler(40)], "gaps": [build_filler(30)]}
        yield _fixed(1_500, Call("submit_analysis", analysis))

    def _writing(self) -> Script:
        yield _fixed(500, *(Call("read_findings", {"step": step}) for step in (ANALYSIS, *PARTS)))
        for number in range(1, _SECTIONS + 1):
            yield ScriptedTurn(450, lambda cuts, number=number: (self._section(number, cuts),))
        yield _fixed(700, Call("submit_report", {"title": "What limits the harbours", "summary": self._paragraph(0)}))

    def _section(self, number: int, cuts: int) -> Call:
        paragraphs = max(1, _PARAGRAPHS >> cuts)
        markdown = "\n\n".join(self._paragraph(number * _PARAGRAPHS + place) for place in range(paragraphs))
        return Call("write_section", {"heading": f"Part {number}", "markdown": markdown})

    def _paragraph(self, place: int) -> str:
        document = self.documents[place % len(self.documents)]
        lines = [line for line in range(2, len(document.lines) + 1) if not document.lines[line - 1].startswith("#")]
        chosen = [lines[(place * 7 + step) % len(lines)] for step in range(_SENTENCES)]
        return " ".join(f"{document.lines[line - 1]} [{document.name}:{line}-{line}]" for line in chosen)


def _fixed(thinking: int, *calls: Call) -> ScriptedTurn:
    return ScriptedTurn(thinking, lambda _: calls)


def _search(number: int) -> Call:
    return Call("search_documents", {"query": _QUERIES[number % len(_QUERIES)], "limit": _HITS})


def _after_reading(
    at: Mapping[Document, int], results: Sequence[str]
) -> tuple[list[Call], dict[Document, int], list[tuple[Document, int]]]:
    """Notes on what was read, where each document goes on, and what of it can be cited."""
    notes: list[Call] = []
    further: dict[Document, int] = {}
    cited: list[tuple[Document, int]] = []
    for (document, first), result in zip(at.items(), results, strict=False):
        last = max((int(number) for number in _NUMBERED.findall(result)), default=len(document.lines))
        lines = [line for line in range(first, last + 1) if not document.lines[line - 1].startswith("#")]
        chosen = lines[:: max(1, len(lines) // _NOTES_A_PAGE)][:_NOTES_A_PAGE]
        notes += [_note(document, line) for line in chosen]
        cited += [(document, line) for line in chosen]
        if last < len(document.lines):
            further[document] = last + 1
    return notes, further, cited


def _note(document: Document, line: int) -> Call:
    said = f"{document.lines[line - 1]} It bears on the question because {build_filler(20, line)}"
    return Call("take_note", {"text": said, "document": document.name, "first_line": line, "last_line": line})


def _finding(document: Document, line: int) -> Body:
    return {"claim": document.lines[line - 1], "citations": [f"[{document.name}:{line}-{line}]"]}
