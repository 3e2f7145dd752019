"""`waystation eval`: measures the quality of reports on questions with known answers."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from pydantic import ValidationError

from waystation import __version__
from waystation.cli.console import OK, WORK_FAILED, print_json, print_message, print_text
from waystation.cli.options import JsonOption, parse_budget, parse_tokens
from waystation.cli.platform import ensure_platform_running, stop_on_signals
from waystation.cli.render import format_count
from waystation.client import Client, connect_client
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit, format_usd
from waystation.kernel.errors import BadInput, Unreachable, WaystationError
from waystation.kernel.files import write_private_file
from waystation.kernel.value import Value
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.evaluation.page import render_evaluation_page
from waystation.plugins.evaluation.question_sets import (
    EvaluationQuestion,
    find_question_set,
    load_evaluation_questions,
    load_question_set,
)
from waystation.plugins.evaluation.scores import (
    MEANS,
    MEASURES,
    Evaluation,
    Metric,
    MetricComparison,
    ScoredAnswer,
    compare_evaluations,
    make_zero_score,
    score_report,
)
from waystation.tasks.task import MAX_WINDOW_TOKENS, MIN_WINDOW_TOKENS, TaskRequest, make_own_session_name
from waystation.tasks.view import TaskView, to_micro_usd
from waystation.workers.shutdown import INTERRUPTED

QUESTION_BUDGET = "1M"
_SETTINGS_SUFFIX = ".toml"
_RESULT_SUFFIX = ".json"
_MEASURES: dict[str, Metric] = {measure: measure for measure in MEASURES}
_NOBODY = "an evaluation denies all requests"

app = typer.Typer()


class EvaluationConfig(NamedTuple):
    """One configuration to evaluate: settings, and what each request sets beyond them."""

    label: str
    settings: Settings
    budget: Limit
    window: int | None

    def request(self, one: EvaluationQuestion) -> TaskRequest:
        """Build the request, in a session of its own: the findings for one question must not help the next."""
        identity = secrets.token_hex(8)
        return TaskRequest(
            question=" ".join(one.gold.question.split()),
            accept=one.gold.criteria,
            tenant=self.settings.tenant,
            session=make_own_session_name(identity),
            request_id=identity,
            budget=self.budget,
            window=self.window,
        )


class EvaluationsJson(Value):
    """What `--json` prints: each configuration with its answers, and the comparison of two."""

    evaluations: tuple[Evaluation, ...]
    means: tuple[dict[str, float | None], ...]
    compared: tuple[MetricComparison, ...]
    test: str
    under: tuple[str, ...]
    """Thresholds of `--least` that were not reached."""


@app.command("eval")
def evaluate_reports(
    questions: Annotated[
        str | None, typer.Argument(metavar="SET", help="YAML file with questions, or `packages`, the built-in set.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only the question with this id; repeatable.")
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="AMOUNT", help="Budget of each question: 600k (tokens) or '$0.50'.")
    ] = QUESTION_BUDGET,
    window: Annotated[str | None, typer.Option(metavar="TOKENS", help="Context window of each agent, like 8k.")] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Two configurations. Each is a file written by --keep (.json), a settings file (.toml) or the name of "
            "a model.",
        ),
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=MEAN",
            help="Exit with 1 if the mean of this metric is below this value, like facts=0.9; repeatable.",
        ),
    ] = None,
    at_once: Annotated[int, typer.Option(metavar="N", min=1, max=32, help="Number of questions at a time.")] = 2,
    keep: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON, for --compare.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page with plots.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate reports on questions with known answers. The scores are computed by code.

    It uses a running platform, or starts one and stops it at the end. Requests for more budget are counted and
    denied.
    """
    floors = [_floor(text) for text in least or ()]
    given = compare or ("",)
    if keep is not None and compare is not None:
        raise BadInput("--keep writes one result: leave out --compare, and compare the files later")
    done = {text: _read_result(Path(text)) for text in given if text.endswith(_RESULT_SUFFIX)}
    limit = parse_budget(budget, "--budget")
    room = None if window is None else parse_tokens(window, "--window", MIN_WINDOW_TOKENS, MAX_WINDOW_TOKENS)
    ways = [_way(text, limit, room) for text in given if text not in done]
    if ways and questions is None:
        raise BadInput("no questions: give a SET, or two results with --compare A.json B.json")
    made = asyncio.run(_evaluated(questions, ways, only or (), at_once)) if ways and questions else []
    if made is None:
        raise typer.Exit(INTERRUPTED)
    found = tuple(done[text] if text in done else made.pop(0) for text in given)
    if keep is not None:
        write_private_file(keep, f"{found[0].model_dump_json(indent=2)}\n".encode())
    if html is not None:
        write_private_file(html, render_evaluation_page(found, _pairs(found)).encode())
    _tell(found, floors, as_json=as_json)


def _pairs(found: Sequence[Evaluation]) -> tuple[MetricComparison, ...]:
    return compare_evaluations(found[0], found[1]) if len(found) > 1 else ()


def _tell(found: Sequence[Evaluation], floors: Sequence[tuple[Metric, float]], *, as_json: bool) -> None:
    """Print everything. Raises Exit with code 1 if a threshold is not reached."""
    pairs = _pairs(found)
    under = [text for one in found for text in _under(one, floors)]
    if as_json:
        means = tuple({measure: one.mean(measure) for measure in MEASURES} for one in found)
        test = "exact two-sided sign test; questions with equal scores are left out" if pairs else ""
        print_json(
            EvaluationsJson(evaluations=tuple(found), means=means, compared=pairs, test=test, under=tuple(under))
        )
    else:
        print_text("\n\n".join([*map(format_evaluation, found), *([format_comparison(pairs)] if pairs else [])]))
    for text in under:
        print_message(text)
    raise typer.Exit(WORK_FAILED if under else OK)


def _floor(text: str) -> tuple[Metric, float]:
    name, _, number = text.partition("=")
    measure = _MEASURES.get(name.strip())
    try:
        floor = float(number)
    except ValueError:
        floor = -1.0
    if measure is None or not 0 <= floor <= 1:
        raise BadInput(
            f"--least {text!r} is invalid: write METRIC=MEAN, like facts=0.9, with a mean from 0 to 1 and one of these "
            f"metrics: {', '.join(MEASURES)}"
        )
    return measure, floor


def _under(found: Evaluation, floors: Sequence[tuple[Metric, float]]) -> list[str]:
    """Return the thresholds that were not reached. One that no question measures is not reached either."""
    means = [(measure, floor, found.mean(measure)) for measure, floor in floors]
    return [
        f"{found.label}: {measure}: "
        + (f"no value, which counts as below {floor}" if mean is None else f"{mean:.3f}, below {floor}")
        for measure, floor, mean in means
        if mean is None or mean < floor
    ]


def _read_result(path: Path) -> Evaluation:
    try:
        return Evaluation.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {(error.strerror or 'it cannot be opened').lower()}") from error
    except (ValidationError, UnicodeDecodeError):
        raise BadInput(
            f"{path} is not the result of an evaluation: `waystation eval SET --keep {path}` writes one"
        ) from None


def _way(text: str, budget: Limit, window: int | None) -> EvaluationConfig:
    """Parse a configuration: a settings file, a model's name, or the current settings."""
    if not text:
        settings = Settings()
        return EvaluationConfig(_model(settings), settings, budget, window)
    if text.endswith(_SETTINGS_SUFFIX):
        return EvaluationConfig(text, Settings(config=Path(text)), budget, window)
    if text == OFFLINE_MODEL:
        return EvaluationConfig(text, Settings(offline=True), budget, window)
    return EvaluationConfig(text, Settings(offline=False, agent_model=text), budget, window)


def _model(settings: Settings) -> str:
    return OFFLINE_MODEL if settings.uses_offline_model else settings.agent_model


async def _evaluated(
    questions: str, ways: Sequence[EvaluationConfig], only: Sequence[str], at_once: int
) -> list[Evaluation] | None:
    """Evaluate each configuration in turn; None if interrupted."""
    stop_on_signals()
    path = find_question_set(questions)
    asked = load_question_set(path)
    here = ways[0].settings.home
    asked_for = _chosen(load_evaluation_questions(asked, path.parent, here / "eval" / "packages"), only)
    try:
        async with ensure_platform_running(ways[0].settings, "the evaluation"):
            return [await _answered_in(way, asked.name, asked_for, at_once) for way in ways]
    except asyncio.CancelledError:
        print_message("Stopped.")
        return None


def _chosen(asked: Sequence[EvaluationQuestion], only: Sequence[str]) -> Sequence[EvaluationQuestion]:
    known = {one.gold.id for one in asked}
    if unknown := next((name for name in only if name not in known), None):
        some = ", ".join(sorted(known)[:5]) + (", …" if len(known) > 5 else "")
        raise BadInput(f"--only {unknown}: the set has no question with this id, only {some}")
    return [one for one in asked if one.gold.id in only or not only]


async def _answered_in(
    way: EvaluationConfig, name: str, asked: Sequence[EvaluationQuestion], at_once: int
) -> Evaluation:
    print_message(f"Asking {format_count(len(asked), 'question')} from the set {name} with {way.label} …")
    room = asyncio.Semaphore(at_once)
    async with await connect_client(way.settings) as client:

        async def answered(one: EvaluationQuestion) -> ScoredAnswer:
            async with room:
                found = await _answered(client, way, one)
                print_message(format_scored_answer(found))
                return found

        answers = await asyncio.gather(*map(answered, asked))
    return Evaluation(
        set=name, label=way.label, version=__version__, model=_model(way.settings), answers=tuple(answers)
    )


async def _answered(client: Client, way: EvaluationConfig, one: EvaluationQuestion) -> ScoredAnswer:
    """Submit the question and score its report; a failure scores 0. Raises Unreachable."""
    begun, task_id = time.perf_counter(), ""
    failed = ScoredAnswer(id=one.gold.id, question=one.gold.question, scores=make_zero_score(one.gold))
    try:
        submitted = await client.submit(way.request(one), one.documents)
        task_id = submitted.task_id
        view = await _followed(client, task_id)
        report = await client.get_report(task_id) if view.shown_report else None
    except Unreachable:
        raise
    except WaystationError as error:
        return failed.replace(task_id=task_id, fault=str(error))
    return _with_cost(failed, view).replace(
        seconds=round(time.perf_counter() - begun, 1),
        scores=failed.scores if report is None else score_report(one.gold, report, one.lines),
        fault=_fault(view) if report is None else "",
    )


def _fault(view: TaskView) -> str:
    return "; ".join([f"the task has no report (phase: {view.phase})", *view.notes])


def _with_cost(answer: ScoredAnswer, view: TaskView) -> ScoredAnswer:
    return answer.replace(
        task_id=view.task_id,
        phase=view.phase,
        tokens=view.budget.spent.tokens,
        micro_usd=to_micro_usd(view.cost_usd),
        compactions=view.sum_compactions().effective_count,
        pauses=len(view.approvals),
    )


async def _followed(client: Client, task_id: str) -> TaskView:
    """Follow the task to its end. Its plan is approved; other requests are denied, so that it delivers what it has."""
    refused: set[str] = set()
    view = await client.get_task(task_id)
    async for view in client.watch(task_id):
        for asked in view.pending_approvals:
            if asked.request_id not in refused:
                refused.add(asked.request_id)
                answer = client.approve if asked.about_plan else client.deny
                await answer(task_id, request_id=asked.request_id, by="eval", note=_NOBODY)
    return view


def format_scored_answer(answer: ScoredAnswer) -> str:
    """Format one question's score in one line."""
    scores = " ".join(f"{measure} {_number(answer.scores.get(measure))}" for measure in MEASURES)
    cost = "price unknown" if answer.micro_usd is None else format_usd(answer.micro_usd)
    usage = f"{answer.tokens:,} tokens, {cost}, {answer.seconds:,.0f} s"
    room = f"{format_count(answer.compactions, 'compaction')}, {format_count(answer.pauses, 'pause')}"
    lacks = f"; missed: {'; '.join(answer.scores.missed)}" if answer.scores.missed and not answer.fault else ""
    said = f"; wrong: {'; '.join(answer.scores.contradictions)}" if answer.scores.contradictions else ""
    return f"{answer.id}: {scores}; {usage}, {room}{lacks}{said}{f'; failed: {answer.fault}' if answer.fault else ''}"


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def format_evaluation(found: Evaluation) -> str:
    """Format the mean scores of a set, and its cost."""
    answers = found.answers
    lines = [f"{found.set}, {found.label}: {format_count(len(answers), 'question')}, {len(found.failed)} failed"]
    lines += [f"  {measure:<10}{_number(found.mean(measure))}  {MEANS[measure]}" for measure in MEASURES]
    cost = "price unknown" if found.micro_usd is None else format_usd(found.micro_usd)
    fewest = min(answer.compactions for answer in answers)
    lines.append(
        f"  {sum(answer.tokens for answer in answers):,} tokens, {cost}, "
        f"{sum(answer.seconds for answer in answers):,.0f} s; "
        f"{format_count(sum(answer.compactions for answer in answers), 'compaction')} (fewest for one question: "
        f"{fewest}), "
        f"{format_count(sum(answer.pauses for answer in answers), 'pause')}"
    )
    lines += [f"  failed: {answer.id} ({answer.fault})" for answer in found.failed]
    return "\n".join(lines)


def format_comparison(pairs: Sequence[MetricComparison]) -> str:
    """Format the comparison of two configurations, metric by metric."""
    lines = [
        "The second configuration compared with the first, by question (exact two-sided sign test; questions with "
        "equal scores are left out):"
    ]
    lines += [
        f"  {pair.measure:<10}from {pair.first:.3f} to {pair.second:.3f} ({pair.second - pair.first:+.3f}); "
        f"better in {pair.better} and worse in {pair.worse} of {format_count(pair.questions, 'question')}; "
        f"p = {pair.p:.3f}"
        for pair in pairs
    ]
    return "\n".join(lines)
