"""`waystation submit`: creates a task from a question and documents."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from waystation.agents.action_approvals import UnattendedPolicy
from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import BudgetMode
from waystation.cli.console import print_message
from waystation.cli.follow import print_submission, warn_if_unattended, watch_and_print_result
from waystation.cli.options import (
    AcceptOption,
    CeilingOption,
    DetachOption,
    InstructionsOption,
    JsonOption,
    LengthOption,
    ModeOption,
    ProceduresOption,
    RequestIdOption,
    ServersOption,
    SkillsOption,
    ThenOption,
    TopUpOption,
    parse_budget,
    parse_document_path,
    parse_limit,
    parse_tokens,
    parse_unattended_options,
    resolve_request_id,
)
from waystation.cli.reading import load_documents_with_progress
from waystation.cli.render import format_count
from waystation.client import Client, connect_client
from waystation.config.presets import REQUEST, ResolvedConfig
from waystation.config.resolver import describe_budget_in_tokens, resolve_config
from waystation.config.settings import Settings, describe_unknown_variables
from waystation.context.policy import StrategyName
from waystation.context.strategies import LAST
from waystation.documents.document_loading import DocumentLoadResult, load_procedures, load_skills
from waystation.documents.documents import MAX_TASK_DOCUMENTS, SkippedItem, SourceDocument
from waystation.documents.procedures import ProcedureSource, is_procedure_file_name, validate_procedures
from waystation.kernel.amount import Limit, format_amount, format_limit
from waystation.kernel.clock import local_now
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.roles import list_step_roles
from waystation.memory.passages import MemoryScope
from waystation.tasks.task import (
    MAX_WINDOW_TOKENS,
    MIN_WINDOW_TOKENS,
    Preset,
    TaskConfig,
    TaskRequest,
    TaskRow,
    make_own_session_name,
)
from waystation.tasks.view import SubmittedTask

app = typer.Typer()
NO_SERVER = "none"
"""Reserved: no tool server that a task may name can have this name."""


@app.command()
def submit(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question that the report answers.")],
    docs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            parser=parse_document_path,
            help="File or folder to work on, repeatable; default: the session's documents.",
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Session to continue; default: a new one.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Budget of the task: 600k (tokens), '$2' or '600k+$2'.")
    ] = None,
    agent_budget: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="Maximum budget that an agent starts with, like 100k or '$0.30'."),
    ] = None,
    ceiling: CeilingOption = None,
    top_up: TopUpOption = None,
    answer_by: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Deadline for your answers: a time like 07:00, or 12h to allow 12 hours for each request.",
        ),
    ] = None,
    then: ThenOption = None,
    preset: Annotated[
        Preset | None,
        typer.Option(
            metavar="NAME", help="Defaults for a kind of work: qa, debugging, long or web. Options override them."
        ),
    ] = None,
    mode: ModeOption = None,
    window: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="Context window of each agent, like 50k.")
    ] = None,
    memory: Annotated[
        MemoryScope | None, typer.Option(metavar="SCOPE", help="Memory to search: session (default) or team.")
    ] = None,
    strategy: Annotated[
        StrategyName | None,
        typer.Option(
            metavar="NAME",
            help="How compactions choose what to summarise: ends (default), window, snapshot or replace.",
        ),
    ] = None,
    accept: AcceptOption = None,
    length: LengthOption = None,
    instructions: InstructionsOption = None,
    procedures: ProceduresOption = None,
    skills: SkillsOption = None,
    servers: ServersOption = None,
    request_id: RequestIdOption = None,
    review_plan: Annotated[
        bool, typer.Option("--review-plan", help="Start no step until a person approves the plan.")
    ] = False,
    detach: DetachOption = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the whole configuration, with the source of each value.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a question with documents, and follow the task until its report is written.

    By default, the task pauses when its budget is spent: it asks here, or waits for `waystation approve`.
    """
    settings, identity = Settings(), resolve_request_id(request_id)
    request = TaskRequest(
        question=question,
        instructions=read_instructions(instructions) if instructions else "",
        accept=tuple(accept or ()),
        length=length,
        tenant=settings.tenant,
        session=make_own_session_name(identity) if session is None else session,
        request_id=identity,
        unattended=parse_unattended_options(top_up, answer_by, then, local_now()),
        review_plan=review_plan or None,
        procedures=load_task_procedures(settings, procedures or [], skills or []),
    )
    whole = _with_amounts(
        request.replace(
            mode=mode, strategy=strategy, memory=memory, preset=preset, servers=parse_server_names(servers)
        ),
        budget,
        agent_budget,
        ceiling,
        window,
    )
    loaded = _load(docs or [], verbose=verbose)
    raise typer.Exit(asyncio.run(_submit(settings, whole, loaded, detach=detach, verbose=verbose, as_json=as_json)))


def _with_amounts(
    request: TaskRequest, budget: str | None, agent_budget: str | None, ceiling: str | None, window: str | None
) -> TaskRequest:
    """Return the request with the parsed amounts. Raises BadInput."""
    given = {
        "budget": parse_budget(budget, "--budget") if budget is not None else None,
        "agent_budget": parse_budget(agent_budget, "--agent-budget") if agent_budget is not None else None,
        "ceiling": parse_limit(ceiling, "--ceiling") if ceiling is not None else Limit(),
        "window": parse_tokens(window, "--window", MIN_WINDOW_TOKENS, MAX_WINDOW_TOKENS)
        if window is not None
        else None,
    }
    return TaskRequest.model_validate({**request.model_dump(), **given})


def parse_server_names(written: str | None) -> tuple[str, ...] | None:
    """Parse a comma-separated list of server names. Raises BadInput."""
    if written is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in written.split(",")))
    if names == (NO_SERVER,):
        return ()
    if NO_SERVER in names or "" in names:
        raise BadInput(f"--servers {written!r}: separate names with commas, like time,wiki; or give only `{NO_SERVER}`")
    return names


def load_task_procedures(settings: Settings, procedures: list[Path], skills: list[Path]) -> tuple[ProcedureSource, ...]:
    """Load procedures and skills; those of the settings if no procedures are named. Raises BadInput."""
    given = load_procedures(procedures or ([settings.procedures.expanduser()] if settings.procedures else []))
    found = load_skills(skills)
    _print_skipped(found.skipped_items, len(found.skipped_items))
    try:
        return validate_procedures((*given, *found.skills))
    except ValueError as error:
        raise BadInput(f"--procedures and --skills: {error}") from None


def read_instructions(path: Path) -> str:
    """Read instructions from a file. Raises BadInput."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        cause = (error.strerror or "it cannot be opened").lower()
        raise BadInput(f"--instructions {path} cannot be read: {cause}. Give a text file that you may read.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"--instructions {path} is not UTF-8 text. Save it as plain text in UTF-8.") from error


def _load(paths: list[Path], *, verbose: bool) -> DocumentLoadResult:
    loaded = load_documents_with_progress(paths) if paths else DocumentLoadResult(documents=())
    most = MAX_TASK_DOCUMENTS if verbose else MAX_SKIPPED_LINES
    _print_skipped(loaded.skipped_items, most)
    _print_changed_names([one for one in loaded.documents if one.file_name], most)
    return loaded


def _print_changed_names(documents: Sequence[SourceDocument], most: int) -> None:
    for one in documents[:most]:
        print_message(f"{one.file_name} is cited as {one.name}")
    if len(documents) > most:
        count = format_count(len(documents) - most, "file")
        print_message(f"Also cited under other names: {count}; --verbose lists them.")


MAX_SKIPPED_LINES = 5


def _print_skipped(items: Sequence[SkippedItem], most: int) -> None:
    for item in items[:most]:
        print_message(f"Skipped {item.name}: {item.reason}")
    if len(items) > most:
        print_message(f"Skipped {format_count(len(items) - most, 'more item')}; --verbose lists all of them.")


async def _submit(
    settings: Settings, request: TaskRequest, loaded: DocumentLoadResult, *, detach: bool, verbose: bool, as_json: bool
) -> int:
    request = request.replace(skipped_items=loaded.skipped_items)
    for sentence in describe_unknown_variables():
        print_message(sentence)
    async with await connect_client(settings) as client:
        documents = loaded.documents or await _known_documents(client, request.session)
        row = await client.prepare_task(request)
        submitted = await submit_task(client, row, documents)
        print_task_summary(settings, row, len(documents))
        if verbose:
            print_task_config(settings, row)
        _print_servers(row, inherited=request.servers is None)
        _warn_about_skill_folders(documents)
        print_submission(submitted)
        return await watch_and_print_result(client, settings, submitted.task_id, detach=detach, as_json=as_json)


async def _known_documents(client: Client, session: str) -> tuple[SourceDocument, ...]:
    """Return the documents of the session's newest task. Raises BadInput if there are none."""
    documents = await client.get_session_documents(session)
    if not documents:
        raise BadInput(
            "no documents: name a file or folder with --docs PATH, or reuse the documents of an earlier task by naming "
            "its session with --session S"
        )
    print_message(f"No --docs: using the documents of the newest task in session {session}.")
    return documents


WHEN_SPENT = {
    BudgetMode.HARD: "an agent that has spent its share delivers what it has",
    BudgetMode.SOFT: "when the budget is spent, agents deliver what they have",
    BudgetMode.APPROVAL: "you are asked when the budget is spent",
}


def print_task_summary(settings: Settings, row: TaskRow, documents: int) -> None:
    """Print what the task works on, what it may spend, and how to follow up later."""
    request, config = row.request, row.config
    chosen = resolve_config(request, settings)
    skipped = f" ({len(request.skipped_items)} skipped)" if request.skipped_items else ""
    print_message(f"{format_count(documents, 'document')}{skipped}")
    budget = f"{format_limit(config.budget)}{_by(chosen, 'budget')}{_ceiling(config)}"
    print_message(f"Budget {budget}; {WHEN_SPENT[config.mode]}{_by(chosen, 'mode')}")
    if (web := chosen.web_limits) is not None:
        print_message(
            f"Web: each agent may search {web.max_searches} times and read {web.max_pages} pages without an approval"
            f"{_by(chosen, 'web_limits')}"
        )
    if request.unattended != UnattendedPolicy():
        print_message(f"While no one answers: {format_unattended_policy(request.unattended)}")
    if config.offline:
        here = settings.server is None and settings.anthropic_api_key is None
        step = ". Set ANTHROPIC_API_KEY to use Claude" if here else ""
        print_message(f"Model: the built-in offline model, which quotes documents and does not reason{step}")
    else:
        print_message(f"Model {config.default.model}")
    if request.session == make_own_session_name(request.request_id):
        print_message(f"Follow up later with --session {request.session}")
    else:
        print_message(f"Session {request.session}")


def print_task_config(settings: Settings, row: TaskRow) -> None:
    """Print every default and choice of the task's configuration, with the source of each."""
    request, config = row.request, row.config
    chosen = resolve_config(request, settings)
    print_message(f"Mode {config.mode}{_by(chosen, 'mode')}; {_agent_budget(config, chosen)} for each agent")
    print_message(f"Agents: {_models(config.default, chosen)}; {_window(config.default, chosen)}")
    if not config.offline and (bought := describe_budget_in_tokens(config, row.submitted_at.date())):
        print_message(bought)
    for role in list_step_roles():
        if (own := config.by_role.get(role)) is not None:
            by = resolve_config(request, settings, role)
            print_message(f"Agents for {role}: {_models(own, by)}; {_window(own, by)}")
    kept_by = _by(chosen, "strategy", "primers", "recents", "keep_last")
    print_message(f"Compaction{kept_by}: {_compaction(config.default)}")


def _print_servers(row: TaskRow, *, inherited: bool) -> None:
    """Print the tool servers that a task names, with the source of the choice."""
    if (named := row.request.servers) is not None:
        whence = (
            f"No --servers: using the tool servers of the newest task in session {row.request.session}. "
            if inherited
            else ""
        )
        print_message(f"{whence}Tool servers: {', '.join(named) or NO_SERVER}.")


def _warn_about_skill_folders(documents: Sequence[SourceDocument]) -> None:
    """Warn about documents named like other tools' procedure files: a person who relies on those should know."""
    if count := sum(is_procedure_file_name(one.name) for one in documents):
        what, them = "is in a folder named skills: agents read it like any other document", "it"
        if count > 1:
            what, them = "are in folders named skills: agents read them like other documents", "them"
        print_message(
            f"{format_count(count, 'document')} {what}. To have agents follow {them}, use --skills or --procedures."
        )


def _by(chosen: ResolvedConfig, *names: str) -> str:
    """Return the source of a choice, unless it is a default or this request."""
    named = dict.fromkeys(chosen.origins[name] for name in names if chosen.origins.get(name, REQUEST) != REQUEST)
    return f" ({', '.join(named)})" if named else ""


def _ceiling(config: TaskConfig) -> str:
    return "" if config.ceiling.is_unlimited else f", which grants may raise to {format_limit(config.ceiling)}"


def _agent_budget(config: TaskConfig, chosen: ResolvedConfig) -> str:
    said = config.agent_budget == chosen.agent_budget
    return format_limit(config.agent_budget) + (_by(chosen, "agent_budget") if said else "")


def _window(agent: AgentConfig, chosen: ResolvedConfig) -> str:
    """Describe the window; one that was requested but is unavailable is named with its size."""
    cut = f" of the requested {chosen.window:,}" if chosen.window is not None and agent.window < chosen.window else ""
    full = f"full at {agent.trigger:,}{_by(chosen, 'trigger_percent')}"
    return f"window {agent.window:,} tokens{cut}{_by(chosen, 'window')}, {full}"


def _models(agent: AgentConfig, chosen: ResolvedConfig) -> str:
    effort = "" if agent.effort is None else f", effort {agent.effort}"
    writer = "" if agent.condense_model == agent.model else f", summaries by {agent.condense_model}"
    return f"model {agent.model}{effort}{_thinking(agent)}{writer}{_by(chosen, 'condense_model') if writer else ''}"


def _thinking(agent: AgentConfig) -> str:
    match agent.thinking:
        case None:
            return ""
        case int() as tokens:
            return f", thinking up to {tokens:,} tokens a reply"
        case way:
            return f", thinking {way}"


def _compaction(agent: AgentConfig) -> str:
    messages = f"when there are {agent.max_view_messages} messages, or earlier; " if agent.max_view_messages else ""
    history = f"; an agent stops at {agent.max_messages:,} messages" if agent.max_messages else ""
    return f"{messages}{_kept(agent)}{history}"


def _kept(agent: AgentConfig) -> str:
    """Describe what a compaction leaves of the messages."""
    match agent.strategy:
        case "window":
            return f"the first {agent.primers} and the last {agent.recents} messages stay"
        case "snapshot":
            return "the newer messages stay, with a snapshot of the older ones"
        case "replace":
            stays = (
                f"the last {agent.keep_last} messages stay" if agent.keep_last else "one summary replaces all messages"
            )
            return f"{stays}, and the files read last are restored"
        case "ends":
            return f"the first message and the last {LAST if agent.keep_last is None else agent.keep_last} stay"


def format_unattended_policy(decided: UnattendedPolicy) -> str:
    """Format what was decided in advance about requests that no one answers."""
    parts: list[str] = []
    if decided.top_up is not None:
        parts.append(
            f"automatic grants of {format_amount(decided.top_up.amount)}, up to "
            f"{format_count(decided.top_up.times, 'time')}"
        )
    end = (
        "the request then counts as denied"
        if decided.at_deadline == "partial"
        else "the request is then marked overdue"
    )
    if decided.answer_by is not None:
        parts.append(f"each request waits until {decided.answer_by:%Y-%m-%d %H:%M %Z}; {end}")
    if decided.answer_within is not None:
        parts.append(f"each request waits {_span(decided.answer_within)}; {end}")
    return "; ".join(parts)


def _span(span: timedelta) -> str:
    minutes = int(span.total_seconds()) // 60
    for size, unit in ((24 * 60, "day"), (60, "hour")):
        if minutes % size == 0:
            return format_count(minutes // size, unit)
    return format_count(minutes, "minute")


async def submit_task(client: Client, row: TaskRow, documents: tuple[SourceDocument, ...]) -> SubmittedTask:
    """Submit the task. Its summary is printed afterwards, because a task that was refused has none."""
    await warn_if_unattended(client)
    try:
        return await client.submit(row, documents)
    except Unreachable as error:
        raise Unreachable(f"{error}. To retry safely, add --request-id {row.request.request_id}") from error
