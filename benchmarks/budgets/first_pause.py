"""Measures the share of a budget that is spent when a person is first asked for more, by how agents share their task's
budget.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client

from benchmarks.budgets.tables import describe_machine, print_table
from tests.support.temporal_platform import POLL_SECONDS, TENANT, TaskSubmitter, run_platform
from waystation.cli.demo import DOCUMENTS, QUESTION
from waystation.config.resolver import build_task_config
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents, write_package_documents
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.plugins.evaluation.question_sets import (
    EvaluationQuestion,
    find_question_set,
    load_evaluation_questions,
    load_question_set,
)
from waystation.tasks.approvals import DENY_BUDGET
from waystation.tasks.task import TaskConfig, TaskPhase, TaskRequest, make_task_id
from waystation.testing.doubles import PlainRedactor
from waystation.workers.models import create_model_router
from waystation.workflows.task import TaskWorkflow

TOGETHER = 3
SMALL_PARTS, LARGE_PARTS = (0.5, 0.8), (0.6,)
"""Of what the same task spends when nothing stops it: budgets that are too small."""
QUESTIONS = (
    QUESTION,
    "Which packages need a compiler or a library of the system, and how is each of them built?",
    "Which versions of Python does each package support, which has it dropped, and what follows for upgrades?",
    "Which packages say that their interface may change, and what does each promise of compatibility?",
    "Who maintains each package, where are faults reported, and how are security issues handled?",
    "Which packages reach the network, and what does each say of proxies, certificates, retries and time-outs?",
    "How is each package installed, which extras does it offer, and on what does it depend?",
    "Which packages read or write files, which formats does each know, and what are their limits?",
    "How is each package tested, which tools do its authors use, and what do they ask of contributors?",
    "Which packages replace or recommend another one, why, and how does one move from one to the other?",
)
"""Each asks about all documents, so that agents read for long."""
AMPLE = Limit(tokens=2_000_000)


class TaskResult(NamedTuple):
    """How a task went."""

    phase: TaskPhase
    spent: int
    """Tokens."""
    limit: int
    asked_at: float | None
    """Share of the budget that was spent at the first request; None where nobody was asked."""


class SharingMode(NamedTuple):
    """How agents share what their task has."""

    name: str
    lends: bool
    """What is held for steps to come is lent, down to a floor, and nobody is asked while an agent of the task goes
    on."""


WAYS = (SharingMode("walls", lends=False), SharingMode("lent", lends=True))


def build_sharing_config(request: TaskRequest, way: SharingMode) -> TaskConfig:
    """As they are submitted, but for the way."""
    terms = build_task_config(request, Settings(offline=True), (), date(2026, 1, 1))
    return terms.replace(minimum_reserve=terms.minimum_reserve if way.lends else None)


@dataclass(frozen=True)
class QuestionRunner:
    """Questions over documents, each of which is asked in several ways."""

    counter: TaskSubmitter
    size: str
    questions: Sequence[str]
    documents: Sequence[SourceDocument]

    async def answer(self, number: int, name: str, budget: Limit, way: SharingMode) -> TaskResult:
        """Have the question answered under that budget; whoever asks for more is denied it."""
        request = TaskRequest(
            question=self.questions[number],
            budget=budget,
            tenant=TENANT,
            session="autumn",
            request_id=f"{self.size}-{name}-{number}",
        )
        await self.counter.submit(request, build_sharing_config(request, way), self.documents)
        task = self.counter.client.get_workflow_handle_for(TaskWorkflow.run, make_task_id(request))
        asked = dict[str, float]()
        while not (progress := await task.query(TaskWorkflow.progress)).phase.over:
            for request_id in (one.request_id for one in progress.approvals if one.decision == "pending"):
                if request_id not in asked:
                    asked[request_id] = progress.budget.limit.compute_used_share(progress.budget.spent)
                    await task.signal(DENY_BUDGET, {"request_id": request_id})
            await asyncio.sleep(POLL_SECONDS)
        return TaskResult(
            progress.phase, progress.budget.spent.tokens, budget.tokens or 0, next(iter(asked.values()), None)
        )

    async def rows(self, parts: Sequence[float]) -> Sequence[Sequence[object]]:
        """A row for each part and way, after each question was asked without a limit that matters."""
        numbers, rows = range(len(self.questions)), list[Sequence[object]]()
        free = [await self.answer(number, "free", AMPLE, WAYS[-1]) for number in numbers]
        for part in parts:
            budgets = [Limit(tokens=int(part * one.spent)) for one in free]
            least, most = (f"{(edge(one.tokens or 0 for one in budgets)):,}" for edge in (min, max))
            for way in WAYS:
                name = f"{way.name}-{part}"
                ended = [await self.answer(one, name, budgets[one], way) for one in numbers]
                rows.append((f"{part:.0%}: {least} to {most}", way.name, *_figures(ended)))
        return rows


def combine_questions(asked: Sequence[EvaluationQuestion]) -> tuple[Sequence[str], Sequence[SourceDocument]]:
    """Three questions of the set at a time as one, over the documents of all."""
    plain = [" ".join(one.gold.question.split()) for one in asked]
    questions = ["; ".join(plain[first : first + TOGETHER]) for first in range(0, len(plain), TOGETHER)]
    documents = {document.name: document for one in asked for document in one.documents}
    return questions, tuple(documents.values())


async def prove(client: Client) -> None:
    """Ask each question without a limit that matters, then under too small ones, in each way."""
    path = find_question_set("packages")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        small = combine_questions(load_evaluation_questions(load_question_set(path), path.parent, folder / "packages"))
        write_package_documents(folder / "installed")
        documents = load_documents([folder / "installed"]).documents[:DOCUMENTS]
        model = create_model_router(Settings(offline=True))
        async with run_platform(client, folder, PlainRedactor({}), model) as counter:
            _show(
                f"ten over {DOCUMENTS} documents",
                await QuestionRunner(counter, "large", QUESTIONS, documents).rows(LARGE_PARTS),
            )
            _show(
                f"ten over {len(small[1])} documents", await QuestionRunner(counter, "small", *small).rows(SMALL_PARTS)
            )
        await model.aclose()


def _show(what: str, rows: Sequence[Sequence[object]]) -> None:
    print_table(
        f"Share of the budget spent when a person is first asked, {what} ({describe_machine()})",
        (
            "budget, in percent of the task's spending without a limit",
            "shares of later steps",
            "asked",
            "median",
            "least",
            "at the end",
            "over",
        ),
        rows,
    )


def _figures(ended: Sequence[TaskResult]) -> Sequence[object]:
    shares = [one.asked_at for one in ended if one.asked_at is not None]
    median, least = (f"{statistics.median(shares):.0%}", f"{min(shares):.0%}") if shares else ("-", "-")
    used = statistics.median(one.spent / one.limit for one in ended)
    return f"{len(shares)} of {len(ended)}", median, least, f"{used:.0%}", sum(one.spent > one.limit for one in ended)
