"""`waystation status`: what runs on this machine."""

import asyncio

import typer

from waystation.adapters.temporal.connect import find_target
from waystation.adapters.temporal.run_file import read_run_file
from waystation.cli.console import print_json, print_text
from waystation.cli.failures import OK, UNREACHABLE
from waystation.cli.options import JsonOption
from waystation.client import Client
from waystation.domain.errors import Unreachable
from waystation.domain.value import Value
from waystation.settings import Settings

app = typer.Typer()


class StatusJson(Value):
    """What runs."""

    home: str
    address: str
    namespace: str
    ui_url: str | None
    codec_endpoint: str | None
    """Where the UI has payloads decrypted, its secret path included; None where `dev` serves none."""
    started_here: bool
    """Whether `dev` or `up` started the server on this machine."""
    server_answers: bool
    unattended_queues: tuple[str, ...]
    waiting_approvals: int | None
    """None where no server answers."""
    offline: bool

    @property
    def ready(self) -> bool:
        """Whether a task that is submitted now is worked on."""
        return self.server_answers and not self.unattended_queues


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Tell what runs on this machine, and whether a task submitted now would be worked on. Exit code 3 if not."""
    found = asyncio.run(_status(Settings()))
    if as_json:
        print_json(found)
    else:
        print_text(_text(found))
    raise typer.Exit(OK if found.ready else UNREACHABLE)


async def _status(settings: Settings) -> StatusJson:
    target = find_target(settings.run_file, settings.temporal_ui)
    run = read_run_file(settings.run_file)
    found = StatusJson(
        home=str(settings.home),
        address=target.address,
        namespace=target.namespace,
        ui_url=target.ui_url,
        codec_endpoint=run.codec_endpoint if run is not None and run.alive else None,
        started_here=run is not None and run.alive and run.address == target.address,
        server_answers=False,
        unattended_queues=(),
        waiting_approvals=None,
        offline=settings.uses_offline_model,
    )
    try:
        async with await Client.connect(settings) as client:
            unattended = await client.unattended_queues()
            waiting = len(await client.approvals())
    except Unreachable:
        return found
    return found.model_copy(
        update={"server_answers": True, "unattended_queues": unattended, "waiting_approvals": waiting}
    )


def _text(found: StatusJson) -> str:
    if not found.server_answers:
        where = f"answers at {found.address}" if found.address else "runs here"
        server = f"no server {where}: `waystation up` starts one"
    else:
        server = f"server {found.address}, namespace {found.namespace}, UI {found.ui_url or 'unknown'}"
    lines = [server, f"home {found.home}"]
    if found.codec_endpoint:
        lines.append(
            f"payloads are encrypted; your browser's codec endpoint for the UI: {found.codec_endpoint} (tell nobody)"
        )
    if found.server_answers:
        queues = ", ".join(found.unattended_queues)
        lines.append(f"no worker polls {queues}: `waystation worker`" if queues else "workers poll every queue")
        lines.append(f"{found.waiting_approvals} requests wait for an answer (`waystation approvals`)")
    lines.append("model: the built-in offline model" if found.offline else "model: by key")
    return "\n".join(lines)
