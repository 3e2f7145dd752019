"""What a task's end leaves in memory: its report, cut where it is structured, and its findings, each by itself."""

import uuid
from collections.abc import Sequence
from datetime import datetime

from waystation.domain.memory import Kind, Passage, content_hash
from waystation.domain.passages import PASSAGE_CHARACTERS, chunks
from waystation.domain.task import TaskRef
from waystation.domain.value import Value

RESULTS_ID = "results/"
"""In the place of a step's id: the slash makes it none."""
_NAMESPACE = uuid.UUID("5b0c1d6e-3a0b-5d0f-8a35-6f0f8c1f7d52")


class Results(Value):
    """Of one task, redacted as summaries are. Not for workflow history."""

    ref: TaskRef
    report: str
    """The written part of the report: without its sources and its account."""
    blob: str
    """Content hash of the whole report."""
    findings: Sequence[tuple[str, str]]
    """Step by step, each claim with its citations."""


def result_passages(results: Results, created: datetime) -> tuple[Passage, ...]:
    """The same results are the same passages, with the same ids."""
    parts = [("", part) for part in chunks(results.report, PASSAGE_CHARACTERS)]
    kinds: dict[Kind, Sequence[tuple[str, str]]] = {"report": parts, "finding": results.findings}
    return tuple(
        _passage(results, kind, step, (place, text), created)
        for kind, texts in kinds.items()
        for place, (step, text) in enumerate(texts)
    )


def results_run(task_id: str) -> str:
    """Under which the store keeps these passages, beside those of the task's agents."""
    return f"{task_id}/{RESULTS_ID}"


def _passage(results: Results, kind: Kind, step: str, cut: tuple[int, str], created: datetime) -> Passage:
    ref, (place, text) = results.ref, cut
    content = content_hash(text)
    return Passage(
        id=str(uuid.uuid5(_NAMESPACE, "\0".join((ref.task_id, kind, step, str(place), content)))),
        tenant=ref.tenant,
        session=ref.session,
        task_id=ref.task_id,
        run_id=results_run(ref.task_id),
        step_id=step,
        kind=kind,
        blob=results.blob if kind == "report" else "",
        text=text,
        content_hash=content,
        created=created,
        place=place,
    )
