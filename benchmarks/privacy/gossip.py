"""A model that repeats everything that it was told, and adds private values that it was not."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from benchmarks.privacy.corpus import Sentence
from benchmarks.privacy.structured import QUERIES
from waystation.agents.tools.tables import is_table
from waystation.context.transcript import Text, ToolUse
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.plugins.offline.summary import build_summary_response
from waystation.testing.doubles import make_scripted_response

Move = tuple[str, dict[str, JsonValue]]
PAGE_LINES = 20
NOTED_LINES = 6
MAX_CITED = 6
_DOCUMENT = re.compile(r"^- (.+) \((\d+) lines\)$", re.MULTILINE)
PROMPT_TOKENS, REPLY_TOKENS = 400, 50


@dataclass
class LeakingModel:
    """A `ChatModel` that plays planner, agents and summariser of one task over these documents."""

    secrets: Sequence[Sentence]
    """What it says of its own accord, one after another and from the beginning again."""
    told: list[str] = field(default_factory=list[str])
    """Every request, as JSON."""
    documents: dict[str, int] = field(default_factory=dict[str, int], init=False)
    """Lines by name, as agents are told them."""
    _moves: dict[str, Iterator[Move]] = field(default_factory=dict[str, Iterator[Move]], init=False)
    _burst: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._said = itertools.cycle([sentence.text for sentence in self.secrets])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next move of whoever asks. One call of an agent breaks with text in its error."""
        self.told.append(request.model_dump_json())
        if not request.tools:
            prompt = request.messages[0].text
            return make_scripted_response(
                Text(text=f"{build_summary_response(prompt, request.max_output).text}\n{next(self._said)}")
            )
        name, arguments = self._move(request)
        if name == "take_note" and not self._burst:
            self._burst = True
            raise ValueError(next(self._said))
        use = ToolUse(id=f"call-{len(self.told)}", name=name, input=arguments)
        usage = Usage(input=PROMPT_TOKENS, output=REPLY_TOKENS)
        return make_scripted_response(Text(text=next(self._said)), use, usage=usage)

    async def count_tokens(self, request: ModelRequest) -> int:  # noqa: ARG002
        """What every prompt costs."""
        return PROMPT_TOKENS

    async def aclose(self) -> None:
        """Nothing is open."""

    def _move(self, request: ModelRequest) -> Move:
        ending = {tool.name for tool in request.tools}
        if "submit_plan" in ending:
            return self._plan()
        step = re.search(r'<step id="([^"]+)"', request.messages[0].text)
        assert step is not None
        if step[1] not in self._moves:
            self.documents = {name: int(lines) for name, lines in _DOCUMENT.findall(request.messages[0].text)}
            self._moves[step[1]] = {"read": self._research, "weigh": self._analysis, "write": self._writing}[step[1]]()
        heard = next((one.content for one in reversed(request.messages[-1].tool_results)), "")
        name, arguments = next(self._moves[step[1]])
        if name == "take_note":
            arguments = arguments | {"text": f"{next(self._said)}\n" + "\n".join(heard.splitlines()[:NOTED_LINES])}
        return name, arguments

    def _plan(self) -> Move:
        roles = {"read": "research", "weigh": "analysis", "write": "writing"}
        needs = {"read": [], "weigh": ["read"], "write": ["weigh"]}
        steps: list[JsonValue] = [
            {"id": one, "role": role, "title": next(self._said), "goal": next(self._said), "needs": [*needs[one]]}
            for one, role in roles.items()
        ]
        return "submit_plan", {"steps": steps}

    def _research(self) -> Iterator[Move]:
        for name, lines in self.documents.items():
            for first in range(1, lines + 1, PAGE_LINES):
                last = min(lines, first + PAGE_LINES - 1)
                yield "read_document", {"name": name, "first_line": first, "last_line": last}
                yield "take_note", {"document": name, "first_line": first, "last_line": last}
            if is_table(name):
                yield from self._queries(name)
            yield "search_documents", {"query": next(self._said)}
            yield "recall", {"query": next(self._said)}
            yield "read_document", {"name": next(self._said)}
        yield "read_notes", {}
        while True:  # again, if citations are returned
            yield "submit_findings", {"findings": [self._finding() for _ in range(20)]}

    @staticmethod
    def _queries(table: str) -> Iterator[Move]:
        for sql in QUERIES:
            yield "query_table", {"tables": {"t": table}, "sql": sql}
            yield "take_note", {"document": table, "first_line": 1, "last_line": 1}

    def _analysis(self) -> Iterator[Move]:
        yield "read_findings", {"step": "read"}
        while True:
            yield "submit_analysis", {"conclusions": [self._finding()], "gaps": [next(self._said)]}

    def _writing(self) -> Iterator[Move]:
        yield "write_section", {"heading": next(self._said)[:190], "markdown": next(self._said)}
        while True:
            yield "submit_report", {"title": "What was found", "summary": next(self._said)}

    def _finding(self) -> JsonValue:
        cited = itertools.islice(self.documents, MAX_CITED)
        return {"claim": next(self._said), "citations": [f"[{name}:1-1]" for name in cited]}
