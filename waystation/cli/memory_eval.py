"""`waystation memory eval`: measures recall of a conversation in one file by the questions in another.

Both have one JSON object per line, and errors name file and line.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Never, TypeVar

import typer
from pydantic import ValidationError

from waystation.agents.auditor import EvalMessage, EvalQuestion, RecallMetrics, compute_recall_metrics, group_by_session
from waystation.cli.console import print_json, print_text
from waystation.cli.context.arguments import read_text
from waystation.cli.options import JsonOption
from waystation.config.settings import Settings
from waystation.kernel.amount import MAX_AMOUNT, parse_token_amount
from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_count
from waystation.kernel.value import Value, extract_validation_faults, find_duplicate_key
from waystation.privacy.policy import should_show_names
from waystation.security.untrusted import sanitize_line

_T = TypeVar("_T", bound=Value)


def _read_lines(path: Path, option: str, kind: type[_T]) -> Mapping[int, _T]:
    """Parse the lines, by number; empty ones are skipped. Raises BadInput."""
    lines = enumerate(read_text(path, option).split("\n"), 1)
    found = {number: _read(path, number, text, kind) for number, text in lines if text.strip()}
    if not found:
        raise BadInput(f"{option} {path} is empty: it needs one JSON object per line")
    return found


def make_line_error(path: Path, number: int, why: str) -> BadInput:
    """Build the error for a line."""
    return BadInput(f"{path}, line {number}: {why}")


def _read(path: Path, number: int, text: str, kind: type[_T]) -> _T:
    try:
        found = kind.model_validate_json(text)
        json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number, parse_int=str)
        return found
    except ValidationError as error:
        # Without the validated value: a line may have anything.
        faults = [
            f"{'.'.join(map(str, fault.place))}: {_said(fault.words)}" for fault in extract_validation_faults(error)
        ]
        raise make_line_error(path, number, "; ".join(fault.removeprefix(": ") for fault in faults)) from None
    except ValueError as error:
        raise make_line_error(path, number, str(error)) from None


def _each_once(pairs: Sequence[tuple[str, object]]) -> Mapping[str, object]:
    if (twice := find_duplicate_key(pairs)) is not None:
        raise ValueError(f"the key {sanitize_line(twice)!r} occurs twice in one object")
    return dict(pairs)


def _no_number(name: str) -> Never:
    raise ValueError(f"{name} is not valid JSON")


def _said(words: str) -> str:
    return "not a JSON object" if words.startswith("Invalid JSON") else words


_KEY = bytes(32)
"""Key of placeholders that no one sees, fixed so that the same files give the same numbers."""


class EvaluationJson(RecallMetrics):
    """The metrics, and what was measured."""

    messages: int
    sessions: int
    questions: int
    passages: int
    bytes_a_passage: float
    """Mean size of a passage's text, in bytes of UTF-8."""
    redacted: bool
    embedder: str


def evaluate(
    conversation: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="JSON Lines of messages: id, role or speaker, text; optionally time, session."
        ),
    ],
    queries: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON Lines of questions: id, text, relevant (ids of messages).")
    ],
    tokens: Annotated[
        str, typer.Option(metavar="N,N…", help="Token limits at which recall is measured, separated by commas.")
    ] = "1000,2000",
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Do not redact, to measure the effect of redaction.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure recall on your own conversation, in a temporary folder.

    The conversation is stored as if a compaction had hidden it, and each question is asked as an agent's `recall`. A
    message counts as found if a part of it is within the token limit.
    """
    budgets = _budgets(tokens)
    lines = _read_lines(conversation, "--conversation", EvalMessage)
    questions = _read_lines(queries, "--queries", EvalQuestion)
    _require_sound(lines, conversation, questions, queries)
    found = asyncio.run(
        _evaluated(Settings(), [*lines.values()], [*questions.values()], budgets, redacted=not no_redact)
    )
    if as_json:
        print_json(found)
    else:
        print_text(_told(found))


def _budgets(text: str) -> tuple[int, ...]:
    try:
        budgets = {parse_token_amount(part) for part in text.split(",")}
    except ValueError:
        budgets = {0}
    if not all(0 < budget <= MAX_AMOUNT.tokens for budget in budgets):
        raise BadInput(
            f"--tokens {sanitize_line(text)!r} is invalid: write numbers separated by commas, like 1000,2000 or 1k,2k"
        )
    return tuple(sorted(budgets))


def _require_sound(
    lines: Mapping[int, EvalMessage], conversation: Path, questions: Mapping[int, EvalQuestion], queries: Path
) -> None:
    """Check that all ids are unique, that questions refer to existing messages, and that there is any text.

    Raises BadInput.
    """
    known = _by_id(lines, conversation)
    _by_id(questions, queries)
    if not any(line.text.strip() for line in lines.values()):
        raise BadInput(f"--conversation {conversation} has no text: every message is empty")
    for number, question in questions.items():
        if not question.text.strip():
            raise make_line_error(queries, number, "the question has no text")
        if unknown := [name for name in question.relevant if name not in known]:
            raise make_line_error(
                queries,
                number,
                f"the field `relevant` names the id {unknown[0]!r}, but no message in {conversation} has this id",
            )


def _by_id(lines: Mapping[int, EvalMessage] | Mapping[int, EvalQuestion], path: Path) -> Mapping[str, int]:
    """Return the line number of each id. Raises BadInput for a duplicate."""
    known: dict[str, int] = {}
    for number, line in lines.items():
        if line.id in known:
            raise make_line_error(path, number, f"the id {line.id!r} is already used in line {known[line.id]}")
        known[line.id] = number
    return known


async def _evaluated(
    settings: Settings,
    lines: Sequence[EvalMessage],
    questions: Sequence[EvalQuestion],
    budgets: Sequence[int],
    *,
    redacted: bool,
) -> EvaluationJson:
    # Qdrant, the embedder and Presidio take seconds to load.
    from waystation.agents.auditor import NoOpRedactor, RecallEvaluation  # noqa: PLC0415
    from waystation.memory.qdrant.edge import QdrantEdgeMemory  # noqa: PLC0415
    from waystation.runtime.redaction_setup import create_redactor, open_embedder, open_evaluation_vault  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        embedder = await stack.enter_async_context(open_embedder(settings))
        memory = await QdrantEdgeMemory.open(folder / "memory", embedder.name, embedder.dimension)
        await stack.enter_async_context(aclosing(memory))
        presidio = create_redactor(settings, _KEY) if redacted else NoOpRedactor()
        stack.callback(presidio.close)
        vault = await stack.enter_async_context(open_evaluation_vault(folder / "vault.db", _KEY))
        trial = RecallEvaluation(
            memory,
            embedder,
            vault.wrap_redactor(presidio),
            time.perf_counter,
            vault.vault,
            should_show_names(settings.privacy),
        )
        passages = await trial.index(lines)
        sessions = group_by_session(lines)
        places = {line.id: place for place, line in enumerate(line for said in sessions.values() for line in said)}
        answers = [await trial.answer_question(question, budgets, places) for question in questions]
    return EvaluationJson(
        **compute_recall_metrics(answers, budgets).model_dump(),
        messages=len(lines),
        sessions=len(sessions),
        questions=len(questions),
        passages=len(passages),
        bytes_a_passage=sum(len(passage.text.encode()) for passage in passages) / max(1, len(passages)),
        redacted=redacted,
        embedder=embedder.name,
    )


def _told(found: EvaluationJson) -> str:
    """Format the result in a few lines."""
    recall = ", ".join(f"{one.recall:.2f} within {format_count(one.tokens, 'token')}" for one in found.recall)
    largest = max(one.tokens for one in found.recall)
    private = "redacted" if found.redacted else "not redacted"
    return "\n".join(
        [
            f"{format_count(found.messages, 'message')}, {format_count(found.sessions, 'session')}: "
            f"{format_count(found.passages, 'passage')} of {found.bytes_a_passage:,.0f} bytes on average; {private}; "
            f"embedder {found.embedder}",
            f"recall {recall}",
            f"MRR {found.mrr:.2f}; {found.median_ms:,.1f} ms per question",
            f"questions with a message that was not found within {format_count(largest, 'token')}: "
            f"{len(found.missed):,} of {found.questions:,}" + (" (--json lists them)" if found.missed else ""),
        ]
    )
