"""A scripted agent: reads a document per turn, takes notes, and submits."""

import json
import re
from dataclasses import dataclass

from pydantic import JsonValue

from waystation.context.transcript import Block, Text, ToolUse
from waystation.documents.documents import SourceDocument
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelResponse
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import has_status

TURNS = 30
DOCUMENTS, LINES = 40, 120
_CALL = re.compile(r'"id": "t(\d+)"')
_WORDS = ("the", "harbour", "silted", "up", "because", "rivers", "brought", "sand", "from", "hills", "for", "years")


def build_documents() -> list[SourceDocument]:
    """Prose, so that each read brings some 2,000 tokens."""
    return [
        SourceDocument(name=f"chapter-{number:02}.md", text="\n".join(_line(number, n) for n in range(LINES)))
        for number in range(1, DOCUMENTS + 1)
    ]


def _line(chapter: int, line: int) -> str:
    words = [_WORDS[(chapter * line + place) % len(_WORDS)] for place in range(11)]
    return f"In {1700 + chapter + line} {' '.join(words)}."


@dataclass
class ReaderModel:
    """Answers the requests of one agent, and those for summaries of its conversation."""

    turns: int = TURNS

    def answer(self, body: dict[str, JsonValue]) -> ModelResponse:
        """The reply of this turn."""
        if not has_status(body):  # it is asked for a summary
            return make_scripted_response(
                Text(text="Read so far: the harbour silted up. " * 40), usage=Usage(output=400)
            )
        turn = 1 + max(map(int, _CALL.findall(json.dumps(body["messages"]))), default=0)
        return make_scripted_response(*self._blocks(turn), usage=Usage(output=150), model=str(body["model"]))

    def _blocks(self, turn: int) -> tuple[Block, ...]:
        if turn >= self.turns:
            submission: dict[str, JsonValue] = {"findings": [], "open_questions": ["Who should have dredged it?"]}
            return (ToolUse(id=f"t{turn}", name="submit_findings", input=submission),)
        name = f"chapter-{turn:02}.md"
        read = ToolUse(id=f"t{turn}", name="read_document", input={"name": name})
        if turn % 3:
            return Text(text=f"I read {name}."), read
        note: dict[str, JsonValue] = {"text": "It silted up.", "document": name, "first_line": 1, "last_line": 1}
        return read, ToolUse(id=f"n{turn}", name="take_note", input=note)
