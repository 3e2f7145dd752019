"""`waystation submit`: a question and documents become a task."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from waystation.adapters.documents.loading import Loaded, load_documents
from waystation.cli.amounts import parse_tokens
from waystation.cli.console import print_json, print_text, say
from waystation.cli.following import ask_person, follow, outcome_code
from waystation.cli.options import JsonOption
from waystation.cli.render import counted
from waystation.cli.reports import keep_report
from waystation.cli.task_json import task_json
from waystation.client import Client
from waystation.domain.budget import Mode
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.task import LOWEST_BUDGET, SourceDocument, TaskRequest
from waystation.seen import Submitted
from waystation.settings import Settings
from waystation.terms import task_terms

SMALLEST_WINDOW, LARGEST_WINDOW = 2_000, 1_000_000

app = typer.Typer()


@app.command()
def submit(
    question: Annotated[str, typer.Argument(help="What is to be found out and written up.")],
    docs: Annotated[list[Path] | None, typer.Option(help="A file or folder; may be given more than once.")] = None,
    session: Annotated[str, typer.Option(help="The line of work that the task belongs to.")] = "default",
    budget: Annotated[str | None, typer.Option(help="Fresh tokens for the whole task, like 600k.")] = None,
    agent_budget: Annotated[str | None, typer.Option(help="Fresh tokens an agent starts with, like 100k.")] = None,
    mode: Annotated[Mode, typer.Option(help="What happens when money runs out.")] = Mode.APPROVAL,
    window: Annotated[str | None, typer.Option(help="Working window of each agent in tokens, like 50k.")] = None,
    accept: Annotated[list[str] | None, typer.Option(help="A criterion of the report; repeatable.")] = None,
    instructions: Annotated[Path | None, typer.Option(help="File with instructions for the agents.")] = None,
    request_id: Annotated[str | None, typer.Option(help="The same id again finds the same task.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Hand in a question with documents, and follow the task until its report is written.

    A budget that is spent pauses the task: it asks here, or waits for `waystation approve`.
    """
    settings = Settings()
    request = TaskRequest(
        question=question,
        instructions=_text_of(instructions) if instructions else "",
        accept=tuple(accept or ()),
        tenant=settings.tenant,
        session=session,
        request_id=request_id or secrets.token_hex(8),
        budget=_tokens(budget, "--budget", settings.budget),
        agent_budget=_tokens(agent_budget, "--agent-budget", settings.agent_budget),
        mode=mode,
        window=parse_tokens(window, "--window", SMALLEST_WINDOW, LARGEST_WINDOW) if window is not None else None,
    )
    loaded = _load(docs or [])
    request = request.model_copy(update={"left_out": loaded.left_out})
    raise typer.Exit(asyncio.run(_submit(settings, request, loaded.documents, detach=detach, as_json=as_json)))


def _tokens(given: str | None, name: str, default: int) -> int:
    return default if given is None else parse_tokens(given, name, LOWEST_BUDGET)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        cause = (error.strerror or "it cannot be opened").lower()
        raise BadInput(f"--instructions {path} cannot be read: {cause}. Give a text file that you may read.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"--instructions {path} is no UTF-8 text. Save it as plain text in UTF-8.") from error


def _load(paths: list[Path]) -> Loaded:
    if not paths:
        raise BadInput("give the documents to work on: --docs PATH, a file or a folder")
    loaded = load_documents(paths)
    for item in loaded.left_out:
        say(f"skipped {item.name}: {item.reason}")
    return loaded


async def _submit(
    settings: Settings, request: TaskRequest, documents: tuple[SourceDocument, ...], *, detach: bool, as_json: bool
) -> int:
    tell_terms(settings, request, len(documents))
    async with await Client.connect(settings) as client:
        submitted = await hand_in(client, request, documents)
        if detach:
            view = await client.progress(submitted.task_id)
        else:
            view = await follow(client, submitted.task_id, ask_person)
        path = await keep_report(client, settings, view.progress)
    if as_json:
        print_json(task_json(view, path))
    elif detach:
        print_text(submitted.task_id)
    elif path is not None:
        print_text(str(path))
    return 0 if detach else outcome_code(view)


def tell_terms(settings: Settings, request: TaskRequest, documents: int) -> None:
    """Print every default and choice that the task will run by."""
    terms = task_terms(request, settings)
    agent = terms.agent
    say(
        f"{counted(documents, 'document')}; session {request.session}; mode {terms.mode}; "
        f"budget {terms.budget:,} tokens, {terms.agent_budget:,} an agent; "
        f"window {agent.window:,}, full at {agent.trigger:,}; model {agent.model}"
    )
    if terms.offline:
        step = "; set ANTHROPIC_API_KEY for Claude" if settings.anthropic_api_key is None else ""
        say(f"The built-in offline model does the work: it extracts and does not reason{step}.")


async def hand_in(client: Client, request: TaskRequest, documents: tuple[SourceDocument, ...]) -> Submitted:
    """Submit, and say what a person should know of it."""
    unattended = await client.unattended_queues()
    if unattended:
        say(f"No worker polls {', '.join(unattended)}: the task waits until one runs (`waystation worker`).")
    try:
        submitted = await client.submit(request, documents)
    except Unreachable as error:
        raise Unreachable(f"{error}: --request-id {request.request_id}") from error
    for warning in submitted.warnings:
        say(f"Warning: {warning}")
    say(f"{submitted.task_id}  {submitted.ui_url or ''}".rstrip())
    return submitted
