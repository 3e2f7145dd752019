"""Connects to Temporal: finds the server, sets how payloads are converted, registers search attributes, and raises
clear errors.

`TEMPORAL_ADDRESS` or `TEMPORAL_PROFILE` in the environment come first, then the run file of a live `waystation dev`,
then the default profile of Temporal's configuration file. No other default is assumed: a server at Temporal's usual
port may be someone else's.

Setting a search attribute that the server does not know blocks a workflow until someone registers it, so workers check
first, and do without if they may not register them.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache
from getpass import getuser
from pathlib import Path
from socket import gethostname
from string import digits
from typing import NamedTuple, Protocol
from urllib.parse import urljoin

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfigProfile, ClientConnectConfig
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RetryConfig, RPCError, RPCStatusCode, ServiceClient

from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.temporal_names import (
    COST_ATTRIBUTE,
    PENDING_ATTRIBUTE,
    PHASE_ATTRIBUTE,
    SESSION_ATTRIBUTE,
    TENANT_ATTRIBUTE,
    TOKENS_ATTRIBUTE,
    add_installation_prefix,
)
from waystation.runtime.temporal.installation import InstallationPlugin
from waystation.runtime.temporal.run_file import RunFile, has_server_in_environment, read_run_file

DEFAULT_ADDRESS = "localhost:7233"
DEFAULT_NAMESPACE = "default"
NEXT_STEP = "start one with `waystation dev` (or `waystation up` in the background), or set TEMPORAL_ADDRESS"
RPC_TIMEOUT = timedelta(seconds=10)
REFUSED = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED})
REFUSED_IN_WORDS = ("code: PermissionDenied", "code: Unauthenticated")
"""The same statuses as the bridge words them when a connection fails."""


class TemporalTarget(NamedTuple):
    """A Temporal server to connect to."""

    profile: ClientConfigProfile
    ui_url: str | None
    run: RunFile | None = None
    """The `waystation dev` that runs the server, if one does."""
    prefix: str = ""
    """Prefix of this installation's task queues, workflows and schedules."""

    @property
    def has_ended(self) -> bool:
        """Whether the server belonged to a `waystation dev` that has ended: another one may listen there by now."""
        return self.run is not None and not self.run.is_server_alive

    @property
    def task_page_prefix(self) -> str | None:
        """Address prefix of task pages, before the task's id, if web pages are served next to the server."""
        # Without the token: a person who follows the link has opened the pages before, or is told how.
        return urljoin(self.run.pages, "/tasks/") if self.run is not None and self.run.pages else None

    @property
    def address(self) -> str:
        """Host and port; empty if no server is named and none of ours runs."""
        return self.profile.address or (DEFAULT_ADDRESS if has_server_in_environment() else "")

    @property
    def namespace(self) -> str:
        """The namespace of everything of ours."""
        return self.profile.namespace or DEFAULT_NAMESPACE

    @property
    def has_api_key(self) -> bool:
        """Whether an API key is sent."""
        return bool(self.profile.api_key)

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted: by a TLS section, and by default with an API key."""
        return self.has_api_key if self.profile.tls is None else not self.profile.tls.disabled

    @property
    def access_denied_error(self) -> Unreachable:
        """The error for a server that answers but denies access."""
        step = (
            "check TEMPORAL_API_KEY, the permissions of the key, and TEMPORAL_NAMESPACE"
            if self.has_api_key
            else "no API key was sent. Set TEMPORAL_API_KEY or a client certificate, and check TEMPORAL_NAMESPACE"
        )
        return Unreachable(f"the Temporal server at {self.address} denies access to namespace {self.namespace}: {step}")


class ServerSettings(Protocol):
    """The settings of the server."""

    @property
    def run_file(self) -> Path:
        """File in which a `waystation dev` of this machine records where it listens."""
        ...

    @property
    def temporal_ui(self) -> str | None:
        """Address of the UI, if a person has set one."""
        ...

    @property
    def prefix(self) -> str:
        """Prefix of this installation's names on the server."""
        ...


def resolve_temporal_target(settings: ServerSettings) -> TemporalTarget:
    """Find the server to connect to."""
    run = None if has_server_in_environment() else read_run_file(settings.run_file)
    if run is not None and run.is_server_alive:
        profile = ClientConfigProfile(address=run.address, namespace=run.namespace)
        return TemporalTarget(
            profile=profile, ui_url=settings.temporal_ui or run.ui_url, run=run, prefix=settings.prefix
        )
    return TemporalTarget(profile=_named_profile(), ui_url=settings.temporal_ui, prefix=settings.prefix)


def _named_profile() -> ClientConfigProfile:
    try:
        return ClientConfigProfile.load()
    except RuntimeError:
        # Neither its message nor the chain: a TOML error quotes the line, which may have a key.
        raise BadInput(
            "the Temporal profile cannot be read: check that the file (TEMPORAL_CONFIG_FILE) is TOML and has the "
            f"profile {os.environ.get('TEMPORAL_PROFILE', 'default')!r} (TEMPORAL_PROFILE)"
        ) from None


def get_client_identity() -> str:
    """Return the identity of a person's program, which the server shows with what that person sent: a claim only."""
    try:
        user = getuser()
    except (KeyError, OSError):  # no user has this process's user id
        user = str(os.getuid())
    return f"{user}@{gethostname()} (waystation)"


@cache
def get_quiet_runtime() -> Runtime:
    """Return the runtime of interactive programs: a failed call raises there, so its retries need no log."""
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=quiet))


async def connect(
    target: TemporalTarget,
    converter: DataConverter = pydantic_data_converter,
    runtime: Runtime | None = None,
    identity: str | None = None,
) -> Client:
    """Connect a client.

    Args:
        target: The server.
        converter: How payloads are read and written; default: plain JSON.
        runtime: Runtime to use instead of the process's own.
        identity: Identity of this process on the server; default: its pid and host. Profiles have no field for it.

    Raises:
        Unreachable: No server answers, it denies access, or it does not have the namespace.
        BadInput: A certificate that the profile names cannot be read.
    """
    if "://" in target.address:
        raise BadInput("TEMPORAL_ADDRESS must be a host and a port without a scheme, like temporal.example.com:7233")
    if not target.address:
        raise Unreachable(f"no Temporal server runs on this machine, and none is configured: {NEXT_STEP}")
    try:
        client = await Client.connect(
            **_options(target),
            data_converter=converter,
            runtime=runtime,
            identity=identity,
            plugins=[InstallationPlugin(target.prefix)],
        )
    except RuntimeError as error:
        # The bridge raises a bare RuntimeError whatever the cause: refused, unknown host, bad certificate.
        if any(words in str(error) for words in REFUSED_IN_WORDS):
            raise target.access_denied_error from None
        encrypted = " with TLS (TEMPORAL_TLS)" if target.uses_tls else ""
        raise Unreachable(f"no Temporal server answers at {target.address}{encrypted}: {NEXT_STEP}") from error
    await _enter_namespace(client, target)
    return client


async def without_retries(client: Client) -> Client:
    """Return the client over a connection of its own without retries, so that the caller learns of a busy server at
    once and decides how long to wait.

    Raises Unreachable.
    """
    impatient = replace(client.service_client.config, retry_config=RetryConfig(max_retries=1))
    try:
        connection = await ServiceClient.connect(impatient)
    except RuntimeError as error:
        raise Unreachable(f"no Temporal server answers at {impatient.target_host}: {NEXT_STEP}") from error
    config = client.config()
    config["service_client"] = connection
    return Client(**config)


async def connect_as_person(target: TemporalTarget, converter: DataConverter = pydantic_data_converter) -> Client:
    """Connect an interactive program, under its user's identity. Raises as `connect`."""
    return await connect(target, converter, get_quiet_runtime(), get_client_identity())


async def describe_latest_run(client: Client, workflow_id: str) -> WorkflowExecutionDescription | None:
    """Describe the newest run of a workflow; None if the server does not know it. Raises RPCError."""
    try:
        return await client.get_workflow_handle(workflow_id).describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


def _options(target: TemporalTarget) -> ClientConnectConfig:
    try:
        options = target.profile.to_client_connect_config()
    except OSError as error:
        raise BadInput(
            f"the certificate or key {error.filename} cannot be read ({error.strerror}): check the settings "
            "TEMPORAL_TLS_… and the profile's tls section"
        ) from error
    return {**options, "target_host": target.address, "namespace": target.namespace}


async def _enter_namespace(client: Client, target: TemporalTarget) -> None:
    """Check that the namespace exists: otherwise the first call would fail with a less clear error."""
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=target.namespace), timeout=RPC_TIMEOUT
        )
    except RPCError as error:
        if error.status in REFUSED:
            raise target.access_denied_error from error
        if error.status == RPCStatusCode.NOT_FOUND:
            raise Unreachable(
                f"the Temporal server at {target.address} has no namespace {target.namespace}: set "
                "TEMPORAL_NAMESPACE to an existing one, or create it with `temporal operator namespace "
                f"create -n {target.namespace}`"
            ) from error
        raise Unreachable(
            f"no Temporal server answers at {target.address} ({error.status.name}): {NEXT_STEP}"
        ) from error


def build_workflow_link(target: TemporalTarget, workflow_id: str) -> str | None:
    """Return the workflow's page in the Temporal UI; None if no UI is known."""
    if target.ui_url is None:
        return None
    on_server = add_installation_prefix(target.prefix, workflow_id)
    return f"{target.ui_url.rstrip('/')}/namespaces/{target.namespace}/workflows/{on_server}"


SEARCH_ATTRIBUTE_TYPES: Mapping[str, IndexedValueType.ValueType] = {
    TENANT_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    SESSION_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    PHASE_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    TOKENS_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_INT,
    COST_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
    PENDING_ATTRIBUTE: IndexedValueType.INDEXED_VALUE_TYPE_INT,
}
FIELDS: Mapping[str, IndexedValueType.ValueType] = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}
"""Types of our attributes, by the names of the fields that a namespace assigns to them: `Keyword01`, `Int02`."""
NOT_OFFERED = REFUSED | {RPCStatusCode.UNIMPLEMENTED}
"""Statuses of a server without the operator's calls: Temporal Cloud, for one, does not offer them."""


async def list_unusable_search_attributes(client: Client) -> tuple[str, ...]:
    """Return attributes that are not registered, of another type than ours, or not visible. Raises Unreachable."""
    with _answering():
        found = await _registered(client)
    return tuple(name for name, wanted in SEARCH_ATTRIBUTE_TYPES.items() if found.get(name) != wanted)


async def ensure_search_attributes(client: Client) -> bool:
    """Register missing search attributes.

    Returns:
        False if the server does not allow it, or has one of the names with another type.

    Raises:
        Unreachable: The server does not answer.
    """
    missing = await list_unusable_search_attributes(client)
    if not missing:
        return True
    request = AddSearchAttributesRequest(
        namespace=client.namespace, search_attributes={name: SEARCH_ATTRIBUTE_TYPES[name] for name in missing}
    )
    with _answering():
        try:
            await client.operator_service.add_search_attributes(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status in NOT_OFFERED:
                return False
            raise
    # Adding a name that exists with another type succeeds without effect: only listing again shows it.
    return not await list_unusable_search_attributes(client)


async def _registered(client: Client) -> Mapping[str, IndexedValueType.ValueType]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        return (await client.operator_service.list_search_attributes(request, timeout=RPC_TIMEOUT)).custom_attributes
    except RPCError as error:
        if error.status not in NOT_OFFERED:
            raise
        return await _aliases(client)


async def _aliases(client: Client) -> Mapping[str, IndexedValueType.ValueType]:
    """Return the name of each numbered field of the namespace, which every client may read."""
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
    )
    kinds = {name: field.rstrip(digits) for field, name in described.config.custom_search_attribute_aliases.items()}
    return {name: FIELDS[kind] for name, kind in kinds.items() if kind in FIELDS}


@contextmanager
def _answering() -> Generator[None]:
    try:
        yield
    except RPCError as error:
        raise Unreachable(f"the Temporal server does not list its search attributes ({error.status.name})") from error
