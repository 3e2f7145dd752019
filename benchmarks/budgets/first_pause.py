"""What share of a budget is spent when a person is first asked for more: shares as walls, and shares that are lent."""

import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client

from benchmarks.budgets.tables import machine, show
from tests.running import POLL, TENANT, Counter, at_work
from waystation.adapters.documents.question_sets import Posed, find_set, load_set, posed
from waystation.adapters.documents.sources import load_documents, write_installed
from waystation.cli.demo import DOCUMENTS, QUESTION
from waystation.domain.amount import Limit
from waystation.domain.approvals import DENY_BUDGET
from waystation.domain.task import SourceDocument, TaskPhase, TaskRequest, TaskTerms, task_id_of
from waystation.settings import Settings
from waystation.terms import task_terms
from waystation.testing import PlainRedactor
from workers.models import model_switch
from workflows.task import TaskWorkflow

TOGETHER = 3
PARTS = (0.5, 0.8)
"""Of what the same task spends when nothing stops it: budgets that are too small."""
LARGE = (150_000, 250_000, 350_000)
"""Tokens, for one task that spends more than that over the descriptions of installed packages."""
AMPLE = Limit(tokens=2_000_000)


class Ended(NamedTuple):
    """How a task went."""

    phase: TaskPhase
    spent: int
    """Tokens."""
    limit: int
    asked_at: float | None
    """Share of the budget that was spent at the first request; None where nobody was asked."""


def terms_of(request: TaskRequest, *, lends: bool) -> TaskTerms:
    """As they are submitted; or with shares as walls."""
    terms = task_terms(request, Settings(offline=True), (), date(2026, 1, 1))
    return terms if lends else terms.model_copy(update={"floor": None})


@dataclass(frozen=True)
class Work:
    """Questions over documents, each of which is asked in several ways."""

    counter: Counter
    questions: Sequence[str]
    documents: Sequence[SourceDocument]


def combined(asked: Sequence[Posed]) -> tuple[Sequence[str], Sequence[SourceDocument]]:
    """Three questions of the set at a time as one, over the documents of all."""
    plain = [" ".join(one.gold.question.split()) for one in asked]
    questions = ["; ".join(plain[first : first + TOGETHER]) for first in range(0, len(plain), TOGETHER)]
    documents = {document.name: document for one in asked for document in one.documents}
    return questions, tuple(documents.values())


async def answered(work: Work, number: int, name: str, budget: Limit, *, lends: bool) -> Ended:
    """Have the question answered under that budget; whoever asks for more is denied it."""
    request = TaskRequest(
        question=work.questions[number], tenant=TENANT, session="autumn", request_id=f"{name}-{number}", budget=budget
    )
    counter = work.counter
    await counter.submit(request, terms_of(request, lends=lends), work.documents)
    task, asked = counter.client.get_workflow_handle_for(TaskWorkflow.run, task_id_of(request)), dict[str, float]()
    while not (progress := await task.query(TaskWorkflow.progress)).phase.over:
        for request_id in (one.request_id for one in progress.approvals if one.decision == "pending"):
            if request_id not in asked:
                asked[request_id] = progress.budget.limit.share_used(progress.budget.spent)
                await task.signal(DENY_BUDGET, {"request_id": request_id})
        await asyncio.sleep(POLL)
    return Ended(progress.phase, progress.budget.spent.tokens, budget.tokens or 0, next(iter(asked.values()), None))


async def _over_descriptions(counter: Counter, folder: Path) -> Sequence[Sequence[object]]:
    """A row for each budget, both ways."""
    write_installed(folder / "installed")
    documents = load_documents([folder / "installed"]).documents[:DOCUMENTS]
    work, rows = Work(counter, [QUESTION], documents), list[Sequence[object]]()
    for tokens in LARGE:
        for way, lends in (("walls", False), ("lent", True)):
            one = await answered(work, 0, f"{way}-{tokens}", Limit(tokens=tokens), lends=lends)
            asked = "-" if one.asked_at is None else f"{one.asked_at:.0%}"
            rows.append((f"{tokens:,}", way, asked, f"{one.spent / one.limit:.0%}", int(one.spent > one.limit)))
    return rows


async def prove(client: Client) -> None:
    """Ask each question without a limit that matters, then under too small ones, both ways."""
    path = find_set("packages")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        questions, documents = combined(posed(load_set(path), path.parent, folder / "packages"))
        model = model_switch(Settings(offline=True))
        async with at_work(client, folder, PlainRedactor({}), model) as counter:
            work, numbers = Work(counter, questions, documents), range(len(questions))
            free = [await answered(work, number, "free", AMPLE, lends=True) for number in numbers]
            rows = list[Sequence[object]]()
            for part in PARTS:
                budgets = [Limit(tokens=int(part * one.spent)) for one in free]
                for way, lends in (("walls", False), ("lent", True)):
                    name = f"{way}-{part}"
                    ended = [await answered(work, one, name, budgets[one], lends=lends) for one in numbers]
                    rows.append((f"{part:.0%}", way, *_figures(ended)))
            wide = [*await _over_descriptions(counter, folder)]
        await model.aclose()
    show(
        f"The same for one task over the descriptions of {DOCUMENTS} installed packages ({machine()})",
        ("budget", "shares of steps to come", "asked at", "at the end", "over"),
        wide,
    )
    show(
        f"Share of the budget spent when a person is first asked ({machine()})",
        (
            "budget, of what the task spends",
            "shares of steps to come",
            "asked",
            "median",
            "least",
            "at the end",
            "over",
        ),
        rows,
    )


def _figures(ended: Sequence[Ended]) -> Sequence[object]:
    shares = [one.asked_at for one in ended if one.asked_at is not None]
    median, least = (f"{statistics.median(shares):.0%}", f"{min(shares):.0%}") if shares else ("-", "-")
    used = statistics.median(one.spent / one.limit for one in ended)
    return f"{len(shares)} of {len(ended)}", median, least, f"{used:.0%}", sum(one.spent > one.limit for one in ended)
