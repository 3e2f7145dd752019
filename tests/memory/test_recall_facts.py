"""A fact is found by a question in other words, however much else shares the question's ordinary words."""

import random
from collections.abc import Sequence

from benchmarks.memory.conversations import Dialogue
from benchmarks.memory.indexing import Question, indexing_dialogue
from waystation.agents.auditor import NoOpRedactor
from waystation.context.transcript import Message, ToolResult, ToolUse
from waystation.memory.embedders.local import WordLlamaEmbedder

FACT = "    BUFFER_BYTES = 25048"
QUESTION = Question("How much memory does the mailer set aside for what comes in?", "m2", FACT)


def _read(place: int, name: str, lines: Sequence[str]) -> tuple[Message, Message]:
    call = ToolUse(id=f"c{place}", name="read_document", input={"name": name})
    result = ToolResult(tool_use_id=call.id, content="\n".join(lines))
    return (
        Message(id=f"m{place}", role="assistant", blocks=(call,)),
        Message(id=f"m{place + 1}", role="user", blocks=(result,)),
    )


def _conversation(logs: int) -> Dialogue:
    """Code of the mailer, of which only the call that read it speaks; then logs of pumps, some of which set memory."""
    code = [f"    def step_{number}(self) -> None: ..." for number in range(24)]
    code.insert(12, FACT)
    messages = [*_read(1, "src/mailer.py", code)]
    for number in range(logs):
        what = "memory comes in, set" if number % 4 == 0 else "valve turned, level"
        lines = [f"pump {number}-{line}: {what} {line + 40}" for line in range(12)]
        messages += _read(3 + 2 * number, f"pump log {number}", lines)
    return Dialogue(random.Random(1), messages=messages, questions=[QUESTION])


async def test_code_that_only_its_call_names_is_found_beside_many_logs_that_share_the_words_of_the_question() -> None:
    async with indexing_dialogue(_conversation(logs=32), NoOpRedactor(), WordLlamaEmbedder()) as there:
        # The engine chooses an order among lines that tie, like those of the logs: at 2,000 tokens that decides.
        assert await there.has_answer(QUESTION, 2_500)
