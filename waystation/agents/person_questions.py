"""Questions that agents put to a person instead of working. No one answers them; the report lists them.

They are read from the transcript, from a reply and the platform's answer to it, so a rewind withdraws them and a fork
takes them over.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from waystation.context.history import get_effective_transcript
from waystation.context.transcript import Message, Transcript
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

NO_ONE_ANSWERS = (
    "No one answers questions while you work. Choose the likeliest meaning, state your assumption, and go on. The "
    "report lists your question."
)
"""Beginning of the platform's answer, by which the question is found again."""
QUESTIONS_NOTE = "An agent asked a person a question and continued with an assumption; the report lists the question."
"""Note for people on a run whose agent did that."""
MAX_QUESTION_CHARACTERS = 600
_QUESTION_MARKS = ("?", "？", "؟", "՞")
_TRAILING = " \t*_`\"'”’»)]}>"
"""Characters that may follow the end of a sentence."""
_SENTENCE_END = compile_bounded(r"(?<=[.!?。！？؟՞])(?=[\s*_\"'”’»)])|(?<=[。！？])|\n")
_REQUEST = compile_bounded(
    r"\b(?:please|kindly|could you|can you|would you)\s(?:\w{1,12}\s){0,2}?"
    r"(?:clarify|confirm|specify|tell me|let me know|advise|choose|provide|share|send|upload)\b"
    r"|\blet me know\b|\b(?:i need|i require|waiting for|awaiting) (?:your|you|more (?:details|information))\b"
    r"|\bbitte\s(?:\w{1,15}\s){0,4}?(?:klären|bestätigen|nennen|mitteilen|angeben|präzisieren|sagen sie)"
    r"|\b(?:klären|bestätigen|nennen|präzisieren|sagen) sie (?:mir )?bitte\b"
    r"|\b(?:veuillez|merci de) (?:\w{1,12}\s)?(?:préciser|confirmer|indiquer|fournir|clarifier)\b"
    r"|\b(?:por favor),? (?:\w{1,12}\s)?(?:aclare|confirme|indique|especifique|proporcione)\b",
)
_LAST_SENTENCES = 2
"""A question is the last sentence, or the one before a closing remark."""


def extract_person_question(reply: Message, assignment: str = "") -> str:
    """Return what a reply without a tool call asks of a person; empty if it asks nothing.

    Args:
        reply: The reply.
        assignment: What the agent was asked. A reply that only repeats it asks nothing.
    """
    if reply.role != "assistant" or reply.tool_uses:
        return ""
    sentences = [words for part in _SENTENCE_END.split(reply.text) if (words := " ".join(part.split()).strip(" *_#>-"))]
    known = _normalise(assignment)
    asking = [one for one in sentences if _is_asking(one) and _normalise(one) not in known]
    if not any(one in asking for one in sentences[-_LAST_SENTENCES:]):
        return ""
    asked = " ".join(asking)
    if len(asked) <= MAX_QUESTION_CHARACTERS:
        return asked
    return f"{asked[: MAX_QUESTION_CHARACTERS - 2].rstrip()} …"


def _is_asking(sentence: str) -> bool:
    return sentence.rstrip(_TRAILING).endswith(_QUESTION_MARKS) or _REQUEST.search(sentence.lower()) is not None


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(f".{''.join(_QUESTION_MARKS)}{_TRAILING}")


class PersonQuestion(Value):
    """One question, and the agents that asked it."""

    text: str
    agents: tuple[str, ...]


def find_person_questions(transcript: Transcript) -> tuple[str, ...]:
    """Return the questions in a transcript that the platform has answered, in order, each once."""
    return tuple(dict.fromkeys(_questions(get_effective_transcript(transcript).messages)))


def _questions(messages: Sequence[Message]) -> Iterator[str]:
    for reply, answer in pairwise(messages):
        if answer.is_platform_message and NO_ONE_ANSWERS in answer.text and (asked := extract_person_question(reply)):
            yield asked


def merge_person_questions(asked: Mapping[str, Sequence[str]]) -> tuple[PersonQuestion, ...]:
    """Merge questions by agent: those that differ only in spaces, letter case or punctuation at the end are one."""
    texts: dict[str, str] = {}
    agents: dict[str, list[str]] = {}
    for agent, questions in asked.items():
        for question in questions:
            key = _normalise(question)
            texts.setdefault(key, question)
            agents.setdefault(key, []).append(agent)
    return tuple(PersonQuestion(text=text, agents=tuple(dict.fromkeys(agents[key]))) for key, text in texts.items())
