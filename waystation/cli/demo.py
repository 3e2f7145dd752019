"""`waystation demo`: a complete task over real documents, from question to report."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.console import can_ask, print_json, print_message, print_text, prompt_line
from waystation.cli.follow import (
    DemoApprovalResponder,
    ask_at_terminal,
    get_exit_code,
    print_submission,
    watch_task,
    write_report_versions,
)
from waystation.cli.options import JsonOption
from waystation.cli.platform import ensure_platform_running, stop_on_signals
from waystation.cli.render import format_count
from waystation.cli.submit import print_task_summary, submit_task
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents, write_package_documents
from waystation.kernel.amount import Amount, Limit, format_amount, format_used_amount
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.roles import list_step_roles
from waystation.models.prices import load_prices
from waystation.models.profiles import find_price
from waystation.tasks.details import format_task_cost
from waystation.tasks.task import TaskRequest
from waystation.tasks.view import TaskView
from waystation.workers.shutdown import INTERRUPTED

QUESTION = "Which licences do these packages carry, what is each of them for, and what needs attention before shipping?"
DOCUMENTS = 80
"""Maximum number of documents, the first by name.

An installation has about twice as many, and since the question asks about each, all of them would take twice as long.
"""
BUDGET = 450_000
AGENT_BUDGET = 100_000
"""Small enough that the task requests more before it has a report."""
_WINDOW = 32_000
"""Small enough that a context fills up and is compacted."""

LIVE_CAP = Amount(micro_usd=500_000)
LIVE_BUDGET = Amount(micro_usd=375_000)
"""Initial budget of a live task; the increase that it requests has to fit under the cap as well."""
LIVE_AGENT_BUDGET = Amount(micro_usd=100_000)

app = typer.Typer()


@app.command()
def demo(
    live: Annotated[bool, typer.Option("--live", help="Use Claude, for at most $0.50.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --live: do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a complete task on the descriptions of 80 installed Python packages.

    It shows a plan, agents, a compaction, a pause for budget and a report. It uses the built-in offline model, even if
    a key is set, and needs no account. It uses a running platform, or starts one and stops it at the end.
    """
    settings = Settings(offline=not live)
    raise typer.Exit(asyncio.run(_demo(settings, live=live, yes=yes, as_json=as_json)))


async def _demo(settings: Settings, *, live: bool, yes: bool, as_json: bool) -> int:
    stop_on_signals()
    try:
        if live:
            await _agree(settings, yes=yes)
        print_message(
            "No downloads: the server, the local models and the documents are part of the installed packages."
        )
        async with ensure_platform_running(settings, "the demo"):
            room = LIVE_CAP.subtract_clamped(LIVE_BUDGET) if live else None
            return await _work(settings, _request(settings, live=live), room, as_json=as_json)
    except asyncio.CancelledError:
        print_message("Stopped.")
        return INTERRUPTED


async def _agree(settings: Settings, *, yes: bool) -> None:
    """Raise BadInput unless the cap can be enforced and the person has agreed to it."""
    if settings.anthropic_api_key is None:
        raise BadInput("--live needs a key: set ANTHROPIC_API_KEY")
    agents = dict.fromkeys(settings.get_model_options(role).model for role in list_step_roles())
    models = (
        *agents,
        settings.condense_model,
        *settings.oversight_models,
    )
    prices = load_prices(settings.prices)
    if any(find_price(model, utc_now().date(), prices) is None for model in models):
        raise BadInput("--live needs models with known prices to enforce its limit: add prices with WAYSTATION_PRICES")
    if not yes:
        if not can_ask():
            raise BadInput("--live makes billed calls, and there is no terminal to ask for confirmation: add --yes")
        print_message(f"This costs at most {format_amount(LIVE_CAP)}, with {', '.join(agents)}.")
        if (await prompt_line("Continue? [y/N]")).lower() not in {"y", "yes"}:
            raise BadInput("not confirmed; nothing was sent")


def _request(settings: Settings, *, live: bool) -> TaskRequest:
    return TaskRequest(
        question=QUESTION,
        tenant=settings.tenant,
        session="demo",
        request_id=secrets.token_hex(8),
        budget=Limit(micro_usd=LIVE_BUDGET.micro_usd) if live else Limit(tokens=BUDGET),
        agent_budget=Limit(micro_usd=LIVE_AGENT_BUDGET.micro_usd) if live else Limit(tokens=AGENT_BUDGET),
        ceiling=Limit(micro_usd=LIVE_CAP.micro_usd) if live else Limit(),
        window=_WINDOW,
    )


async def _work(settings: Settings, request: TaskRequest, room: Amount | None, *, as_json: bool) -> int:
    folder = settings.home / "demo" / "documents"
    write_package_documents(folder)
    installed = load_documents([folder]).documents
    documents = installed[:DOCUMENTS]
    print_message(f"Documents: the descriptions of {len(documents)} of the {len(installed)} installed Python packages.")
    async with await Client.connect(settings) as client:
        row = await client.prepare_task(request)
        submitted = await submit_task(client, row, documents)
        print_task_summary(settings, row, len(documents))
        print_submission(submitted)
        view = await watch_task(
            client, submitted.task_id, ask_at_terminal if can_ask() else DemoApprovalResponder(room)
        )
        path = await write_report_versions(client, settings, view)
    if as_json:
        print_json(view.with_report_path(path))
    else:
        print_text(_ending(view, path))
    return get_exit_code(view)


def _ending(view: TaskView, path: Path | None) -> str:
    compactions = view.sum_compactions()
    granted = sum((approval.granted for approval in view.approvals), Amount())
    lines = [
        f"Task {view.task_id}: {view.phase}",
        f"Report: {path or 'none'}",
        f"Cost: {format_task_cost(view)}; spent {format_used_amount(view.budget.spent, view.budget.limit)} "
        f"(the limit includes {format_amount(granted)} granted in a pause); {view.usage.cache_read:,} tokens "
        "read from the cache",
        f"Compactions: {compactions.count}, with {format_count(compactions.redactions, 'redaction')}",
        f"Temporal UI, while the Temporal server runs: {view.ui_url or 'unknown'}",
    ]
    return "\n".join(lines)
