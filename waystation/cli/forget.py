"""`waystation memory forget`: memory, and where asked for every word, of tasks that are over."""

import asyncio
from typing import Annotated

import typer

from waystation.adapters.clock import utc_now
from waystation.cli.console import confirmed, print_json, print_text, say
from waystation.cli.moments import past_moment
from waystation.cli.options import JsonOption
from waystation.cli.seeing_through import require_workers
from waystation.client import Client
from waystation.client.forget import Gone, Selection, forget, selected
from waystation.settings import Settings

app = typer.Typer()


@app.command("forget")
def forget_tasks(
    session: Annotated[str | None, typer.Option(help="All tasks of this session.")] = None,
    task: Annotated[str | None, typer.Option(help="One task; the beginning of its id is enough.")] = None,
    all_of_tenant: Annotated[bool, typer.Option("--all-of-tenant", help="All tasks of this tenant.")] = False,
    before: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Only tasks that ended before; alone, of the whole tenant."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Also question, documents, transcripts, notes, reports, histories.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what memory can find of tasks that are over, or all that was said in them. It cannot be undone."""
    ended_before = past_moment(before, "--before", utc_now().astimezone())
    selection = Selection(session=session, task=task, all_of_tenant=all_of_tenant, ended_before=ended_before)
    gone = asyncio.run(_forget(selection, everything=everything, yes=yes))
    if gone is None:
        say("nothing was forgotten")
    elif as_json:
        print_json(gone)
    else:
        print_text(told(gone))


async def _forget(selection: Selection, *, everything: bool, yes: bool) -> Gone | None:
    settings = Settings()
    async with await Client.connect(settings) as client:
        task_ids = await selected(client, settings, selection)
        if not yes and not await confirmed(_question(len(task_ids), everything=everything)):
            return None
        await require_workers(client)
        return await forget(settings, task_ids, everything=everything)


def _question(tasks: int, *, everything: bool) -> str:
    what = "every word of" if everything else "what memory can find of"
    return f"Forget {what} {tasks} task{'s' * (tasks != 1)}? It cannot be undone. [y/N]"


def told(gone: Gone) -> str:
    """How many of each kind went, and what still has them."""
    counts = {**gone.forgotten.model_dump(), "histories": gone.histories, "files": gone.files}
    listed = [f"{count:,} {_one(kind) if count == 1 else kind}" for kind, count in counts.items() if count]
    went = f"forgotten: {', '.join(listed)}" if listed else "there was nothing left to forget"
    return "\n".join([went, *gone.remains])


def _one(kind: str) -> str:
    return "history" if kind == "histories" else kind.removesuffix("s")
