"""A task on its way: what a person should know when it was handed in, then its end, and what is printed of it."""

from waystation.cli.console import print_json, print_text, say
from waystation.cli.following import ask_person, follow, outcome_code
from waystation.cli.reports import keep_report
from waystation.cli.task_json import task_json
from waystation.client import Client
from waystation.domain.errors import Unreachable
from waystation.seen import Submitted
from waystation.settings import Settings


def tell_of(submitted: Submitted) -> None:
    """What its agents follow, its warnings, its id, its page."""
    for one in submitted.procedures:
        say(f"Agents follow the procedure {one.name} (sha256 {one.digest}).")
    for warning in submitted.warnings:
        say(f"Warning: {warning}")
    say(f"{submitted.task_id}  {submitted.ui_url or ''}".rstrip())


async def tell_of_unattended(client: Client) -> None:
    """Where nobody would take it up. Raises Unreachable."""
    if unattended := await client.unattended_queues():
        say(f"No worker polls {', '.join(unattended)}: the task waits until one runs (`waystation worker`).")


async def require_workers(client: Client) -> None:
    """Raise Unreachable where nobody would carry an order out, or there is no server."""
    if unattended := await client.unattended_queues():
        raise Unreachable(f"no worker polls {', '.join(unattended)}: start one (`waystation up`), then try again")


async def see_through(client: Client, settings: Settings, task_id: str, *, detach: bool, as_json: bool) -> int:
    """Follow it until it is over, unless that is not wanted; print the result. The exit code."""
    view = await client.progress(task_id) if detach else await follow(client, task_id, ask_person)
    path = await keep_report(client, settings, view.progress)
    if as_json:
        print_json(task_json(view, path))
    elif detach:
        print_text(task_id)
    elif path is not None:
        print_text(str(path))
    return 0 if detach else outcome_code(view)
