"""`waystation show`, `watch`, `report`, `diff`, `cost`, `prices` and `transcript`: a task and its results as people see
them.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, get_args

import typer

from waystation.cli.console import print_json, print_markdown, print_message, print_text, print_verbatim, result
from waystation.cli.follow import describe_shown_version, watch_and_print_result, write_report_versions
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render import (
    format_cost_report,
    format_count,
    format_message,
    format_prices,
    format_temporal_actions,
    render_task_screen,
    render_task_summary,
)
from waystation.cli.render_context import format_context, format_restored_counts, format_transcript
from waystation.cli.tools import format_agent_tools, list_agent_tools
from waystation.client import connect_client
from waystation.client.exports import (
    FILE_SUFFIXES,
    ReportFormat,
    ReportWithImprint,
    list_report_sources,
    load_draft,
    load_report,
    render_report_file,
)
from waystation.client.store_queries import format_report_versions, require_not_forgotten, restore_task_text
from waystation.config.resolver import iter_called_models, resolve_endpoint_prices
from waystation.config.settings import Settings
from waystation.context.audit import build_transcript_view
from waystation.context.history import build_model_view
from waystation.context.transcript import Transcript
from waystation.kernel.clock import local_now, utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.files import write_private_file
from waystation.kernel.value import Value
from waystation.models.prices import load_prices
from waystation.models.profiles import PRICE_SOURCE, Price, find_price, get_model_profile
from waystation.planning.plan import PLANNING_ID, RESERVED_STEP_ID_PATTERN
from waystation.plugins.exports.page import NO_DETAILS, SourceDetails
from waystation.reports.changes import ReportChanges, compare_reports, render_claim_with_citations
from waystation.reports.cited_sentences import extract_cited_sentences
from waystation.reports.sections import extract_brief_report
from waystation.tasks.progress import CostBreakdown, TemporalActionCounts
from waystation.tasks.task import TaskRequest
from waystation.tasks.view import AgentMessagesView, AgentView, CostView

app = typer.Typer()


@app.command()
def show(
    task: TaskArgument,
    context: Annotated[
        bool, typer.Option("--context", help="Show only what fills each agent's next request to the model.")
    ] = False,
    tools: Annotated[
        bool, typer.Option("--tools", help="Show only which tools each agent sees, and why other tools are hidden.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option(metavar="AGENT", help="With --context or --tools: only this agent, like research-1."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the whole run, with transcripts, to one HTML file."),
    ] = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="With --html: replace placeholders by their originals, using your key.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show everything: steps, compactions, answers and messages.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a task: its state, progress, cost, open requests and the next command. Also write its report to a file."""
    if sum([context, tools, html is not None]) > 1:
        raise BadInput("--context, --tools and --html are different views: use one of them")
    if agent is not None and not (context or tools):
        raise BadInput("--agent selects whose context or tools are shown: add --context or --tools")
    if restore and html is None:
        raise BadInput("--restore applies to the file that --html writes: add --html FILE")
    if html is not None:
        shown = _write_run(Settings(), task, html, restore=restore)
    elif context:
        shown = _show_context(Settings(), task, agent, as_json=as_json)
    elif tools:
        shown = _show_tools(Settings(), task, agent, as_json=as_json)
    else:
        shown = _show(Settings(), task, verbose=verbose, as_json=as_json)
    asyncio.run(shown)


async def _write_run(settings: Settings, task: str, path: Path, *, restore: bool) -> None:
    # This import loads templates, which no other command here needs.
    from waystation.plugins.web.task_page import find_placeholders, render_run_file, restore_originals  # noqa: PLC0415

    async with await connect_client(settings) as client:
        page = await render_run_file(client, task_id := await client.resolve_task_id(task))
    if restore:
        found = find_placeholders(page)
        restored = await restore_task_text(settings, task_id, "\0".join(found))
        print_message(format_restored_counts(restored))
        page = restore_originals(page, dict(zip(found, restored.text.split("\0"), strict=False)))
    _hand_over(page.encode(), path, f"{task_id}.html")


async def _show_context(settings: Settings, task: str, agent: str | None, *, as_json: bool) -> None:
    async with await connect_client(settings) as client:
        found = await client.list_agent_contexts(await client.resolve_task_id(task), agent)
    if as_json:
        print_json(list(found))
        return
    print_text("\n\n".join(map(format_context, found)) or "No agent has started yet.")


async def _show_tools(settings: Settings, task: str, agent: str | None, *, as_json: bool) -> None:
    async with await connect_client(settings) as client:
        found = await list_agent_tools(client, settings, await client.resolve_task_id(task), agent)
    if as_json:
        print_json(list(found))
        return
    print_text(format_agent_tools(found))


async def _show(settings: Settings, task: str, *, verbose: bool, as_json: bool) -> None:
    async with await connect_client(settings) as client:
        view = await client.get_task(await client.resolve_task_id(task), details=True)
        path = await write_report_versions(client, settings, view)
    if as_json:
        print_json(view.with_report_path(path))
        return
    if verbose:
        result.print(render_task_screen(view, local_now(), result.width), soft_wrap=True)
    else:
        result.print(render_task_summary(view), soft_wrap=True)
    if remark := describe_shown_version(view.task_id, view.phase, view.reports):
        print_message(remark)
    if path is not None:
        print_text(str(path))


@app.command()
def cost(
    task: TaskArgument,
    actions: Annotated[
        bool,
        typer.Option("--actions", help="Also count the task's Temporal actions, from its history on the server."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a task has cost so far, by agent, model and kind of call, and what each compaction cost."""
    bill, counted = asyncio.run(_load_cost(task, actions=actions))
    if as_json:
        print_json(CostView.from_breakdown(bill, counted))
        return
    print_text(format_cost_report(bill, result.width))
    if actions:
        print_text(format_temporal_actions(counted))


async def _load_cost(task: str, *, actions: bool) -> tuple[CostBreakdown, TemporalActionCounts | None]:
    async with await connect_client(Settings()) as client:
        task_id = await client.resolve_task_id(task)
        return await client.get_bill(task_id), await client.count_temporal_actions(task_id) if actions else None


class PricesJson(Value):
    """Prices in USD per million tokens, as text because they are exact, and the models in use that have none today."""

    prices: tuple[Price, ...]
    without: tuple[str, ...]


@app.command()
def prices(as_json: JsonOption = False) -> None:
    """List the known model prices with their source, and the configured models without a price.

    Published prices apply only at the provider's own endpoint.
    """
    settings = Settings()
    asked = TaskRequest(question="What does it cost?", request_id="prices")
    wanted = tuple(dict.fromkeys(iter_called_models(asked, settings)))
    found = load_prices(settings.prices)
    today, here = utc_now().date(), resolve_endpoint_prices(wanted, found, settings)
    without = tuple(name for name in wanted if find_price(name, today, here) is None)
    if as_json:
        print_json(PricesJson(prices=found, without=without))
    else:
        held = [price for price in found if price.since > today or price == find_price(price.model, today, found)]
        print_text(
            format_prices([one for one in held if one.source != PRICE_SOURCE or get_model_profile(one.model).is_known])
        )
        if without:
            print_message(f"Models without a known price at their endpoint: {', '.join(without)}")


_BINARY = frozenset({"pdf", "docx"})


@app.command()
def report(
    task: TaskArgument,
    draft: Annotated[
        bool, typer.Option("--draft", help="Print the report that an unfinished task would deliver now.")
    ] = False,
    version: Annotated[
        int | None,
        typer.Option(metavar="N", help="Version of the report; default: the last one delivered."),
    ] = None,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore", help="Replace placeholders by their originals, using your key. Credentials stay hidden."
        ),
    ] = False,
    form: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Export: md, html, pdf, docx or json, with numbered citations; or the sources as bibtex or ris.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File or folder to write to; the extension sets the format."),
    ] = None,
    pictures: Annotated[
        list[Path] | None,
        typer.Option(
            "--pictures",
            metavar="PATH",
            help="For html: cited PDF or picture, or a folder of them, to show each passage on its page; repeatable.",
        ),
    ] = None,
    passages: Annotated[
        bool,
        typer.Option(
            "--passages",
            help="For html: below each source, show what is cited: lines, cells of a workbook or part of an e-mail.",
        ),
    ] = False,
    brief: Annotated[
        bool,
        typer.Option(
            "--brief", help="Leave out the sections about how the report was made and about document versions."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a task's report, or export it to a file.

    A terminal gets the report formatted, a pipe gets the stored Markdown.
    """
    if as_json and (form or output or brief):
        raise BadInput("--json prints the whole report as it is stored: leave out --format, --output and --brief")
    if draft and version is not None:
        raise BadInput("--version selects a stored report, but a draft is not stored: leave out --version or --draft")
    form = form or (_format_of(output) if output is not None else None)
    if (pictures or passages) and form != "html":
        raise BadInput("--passages and --pictures work only with an HTML file: use --format html")
    if form in _BINARY and output is None and sys.stdout.isatty():
        raise BadInput(f"a terminal cannot show {form}: use --output {task}.{form}, or redirect the output into a file")
    found = asyncio.run(_draft(task) if draft else _stored(task, version))
    if restore:
        found = asyncio.run(_restored(found))
    if brief:
        found = found._replace(report=found.report.replace(markdown=extract_brief_report(found.report.markdown)))
    if as_json:
        print_json(found.report)
    elif form is None:
        print_markdown(found.report.markdown)
    else:
        extras = NO_DETAILS
        if passages or pictures:
            extras = asyncio.run(_load_extras(found, pictures or [], passages=passages, redacted=not restore))
        _hand_over(_exported(found, form, extras), output, f"{found.report.task_id}.{FILE_SUFFIXES.get(form, form)}")


def _format_of(output: Path) -> ReportFormat:
    """Return the format by the file's extension. Raises BadInput."""
    ending = output.suffix.removeprefix(".").lower()
    for form in get_args(ReportFormat):
        if ending in {form, FILE_SUFFIXES.get(form)}:
            return form
    raise BadInput(
        f"{output} has no extension that sets the format: add --format, one of {', '.join(get_args(ReportFormat))}"
    )


def _exported(found: ReportWithImprint, form: ReportFormat, extras: SourceDetails) -> bytes:
    """Render the report. Raises BadInput if a package for it is not installed."""
    file = render_report_file(found, form, extras)
    if file.warning:
        print_message(file.warning)
    return file.content


async def _load_extras(
    found: ReportWithImprint, paths: Sequence[Path], *, passages: bool, redacted: bool
) -> SourceDetails:
    """Load and draw the cited passages, and report those that cannot be shown."""
    from waystation.client.passage_pictures import build_passage_pictures  # noqa: PLC0415
    from waystation.client.passage_views import build_exported_passages  # noqa: PLC0415

    settings, sources, extras = Settings(), list_report_sources(found), NO_DETAILS
    async with await connect_client(settings) as client:
        if passages:
            shown = await build_exported_passages(client, settings, found.report.task_id, sources, redacted=redacted)
            extras = extras._replace(passages=shown.passages)
            for one in shown.skipped_items:
                print_message(f"no passage for source {one.name}: {one.reason}")
        if paths:
            drawn = await build_passage_pictures(client, settings, found.report.task_id, sources, paths)
            extras = extras._replace(pictures={number: one.png for number, one in drawn.pictures.items()})
            for one in drawn.skipped_items:
                print_message(f"no picture for source {one.name}: {one.reason}")
    return extras


def _hand_over(content: bytes, output: Path | None, name: str) -> None:
    """Write to a file and print its path; or write to stdout."""
    if output is not None:
        path = output / name if output.is_dir() else output
        write_private_file(path, content)
        print_text(str(path))
    elif sys.stdout.isatty():
        print_verbatim(content.decode())
    else:
        sys.stdout.buffer.write(content)


async def _draft(task: str) -> ReportWithImprint:
    async with await connect_client(Settings()) as client:
        return await load_draft(client, await client.resolve_task_id(task))


async def _stored(task: str, number: int | None) -> ReportWithImprint:
    async with await connect_client(Settings()) as client:
        found = await load_report(client, await client.resolve_task_id(task), number)
    report = found.report
    if number is None and (remark := describe_shown_version(report.task_id, report.phase, report.versions)):
        print_message(remark)
    if len(report.versions) > 1:
        print_message(
            f"Version {report.version} of the report. All versions: {format_report_versions(report.versions)}. "
            "--version N prints version N."
        )
    return found


async def _restored(found: ReportWithImprint) -> ReportWithImprint:
    restored = await restore_task_text(Settings(), found.report.task_id, found.report.markdown)
    print_message(format_restored_counts(restored))
    sentences = extract_cited_sentences(restored.text)
    return found._replace(report=found.report.replace(markdown=restored.text, sentences=sentences))


@app.command()
def diff(
    before: Annotated[
        str, typer.Argument(metavar="TASK", help="Id of the earlier task, or the first characters of the id.")
    ],
    after: Annotated[str, typer.Argument(metavar="TASK", help="Id of the later task.")],
    as_json: JsonOption = False,
) -> None:
    """Compare the reports of two tasks: claims that are new, gone or changed, with their citations."""
    found = asyncio.run(_diff(before, after))
    if as_json:
        print_json(found)
    else:
        print_text(format_report_changes(found))


async def _diff(before: str, after: str) -> ReportChanges:
    async with await connect_client(Settings()) as client:
        old, new = [await client.get_report(await client.resolve_task_id(task)) for task in (before, after)]
    return compare_reports(old, new)


def format_report_changes(found: ReportChanges) -> str:
    """Format the changes by kind, one claim per line; both versions if it has changed."""
    parts = [
        _claim_list("New", [f"+ {render_claim_with_citations(claim)}" for claim in found.new]),
        _claim_list("Gone", [f"- {render_claim_with_citations(claim)}" for claim in found.gone]),
        _claim_list(
            "Changed",
            [
                f"- {render_claim_with_citations(pair.before)}\n+ {render_claim_with_citations(pair.after)}"
                for pair in found.changed
            ],
        ),
        f"{format_count(found.same, 'claim')} unchanged"
        + ("; no claim is new, gone or changed" if found.is_empty else ""),
    ]
    return "\n\n".join(filter(None, parts))


def _claim_list(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{head} ({len(lines)})", *lines]) if lines else ""


@app.command()
def transcript(
    task: TaskArgument,
    agent: Annotated[
        str | None,
        typer.Option(metavar="AGENT", help="Id of the agent, like research-1; without --agent, all are listed."),
    ] = None,
    only_view: Annotated[
        bool,
        typer.Option(
            "--view", help="Print only what the model sees now: summaries instead of the messages that they hide."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the whole transcript of an agent, redacted, with notes on what compactions changed."""
    if agent is None:
        _list_agents(task, as_json=as_json)
        return
    found = asyncio.run(_transcript(task, agent))
    if as_json:
        print_json(
            AgentMessagesView(run_id=found.run_id, messages=build_model_view(found))
            if only_view
            else build_transcript_view(found)
        )
        return
    for text in (
        map(format_message, build_model_view(found)) if only_view else format_transcript(build_transcript_view(found))
    ):
        print_text(text)


async def _transcript(task: str, agent: str) -> Transcript:
    async with await connect_client(Settings()) as client:
        return await client.get_transcript(await client.resolve_task_id(task), agent)


def _list_agents(task: str, *, as_json: bool) -> None:
    task_id, agents = asyncio.run(_agents(task))
    if as_json:
        print_json(agents)
        return
    for agent in agents:
        print_text(f"{agent.id}  {agent.role}")
    steps = [agent.id for agent in agents if not RESERVED_STEP_ID_PATTERN.fullmatch(agent.id)]
    chosen = (steps or [PLANNING_ID])[-1]
    print_message(f"Choose an agent: `waystation transcript {task_id} --agent {chosen}`")


async def _agents(task: str) -> tuple[str, list[AgentView]]:
    async with await connect_client(Settings()) as client:
        task_id = await client.resolve_task_id(task)
        view, bill = await client.get_task(task_id), await client.get_bill(task_id)
    require_not_forgotten(task_id, view.title)
    agents = [AgentView(id=PLANNING_ID, role="planning"), *(AgentView(id=one.id, role=one.role) for one in view.steps)]
    return task_id, [*agents, *_list_oversight_agents(bill)]


OVERSIGHT_ROLES = {"review": "reviewing", "judge": "reviewing", "revision": "planning"}
"""Roles of the agents that review the report, judge its sentences and revise the plan, by the start of their ids."""


def _list_oversight_agents(bill: CostBreakdown) -> list[AgentView]:
    """List the agents that reviewed or judged the report or revised the plan, in the order of their first call."""
    called = dict.fromkeys([line.agent for line in bill.lines] + [call.agent for call in bill.possibly_billed])
    found = [agent for agent in called if RESERVED_STEP_ID_PATTERN.fullmatch(agent) and agent != PLANNING_ID]
    return [AgentView(id=agent, role=OVERSIGHT_ROLES[agent.partition("-")[0]]) for agent in found]


@app.command()
def watch(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Follow a task until it ends, and answer its requests at the terminal."""
    raise typer.Exit(asyncio.run(_watch(Settings(), task, as_json=as_json)))


async def _watch(settings: Settings, task: str, *, as_json: bool) -> int:
    async with await connect_client(settings) as client:
        return await watch_and_print_result(
            client, settings, await client.resolve_task_id(task), detach=False, as_json=as_json
        )
