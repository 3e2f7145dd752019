"""Reads the config file of tool servers, in the format that other MCP clients use.

Variables are expanded, `${NAME}`, `${env:NAME}` or `${NAME:-default}` as in other clients, and so are secrets of the
vault, `${secret:NAME}`.
"""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.roles import AgentRole
from waystation.kernel.value import Value, extract_validation_faults, find_duplicate_key

MIN_SECRET_CHARACTERS = 6
"""Minimum length of a secret in characters; a shorter one occurs in too many texts by chance."""
_VARIABLE = compile_bounded(r"\$\{(env:|secret:)?([A-Za-z_][A-Za-z0-9_]*+)(?::-([^}]{0,8000}+))?\}")
_VAULT_PREFIX = "secret:"
_SECRET_NAME = compile_bounded(
    r"key|tok(en|$|[_-])|secret|pass|pwd|auth|credential|cookie|bearer|(^|[_-])pat($|[_-])", re.IGNORECASE
)


class VariableExpander:
    """Expands variables and remembers which values are secrets: those of the vault, and those named like one."""

    def __init__(self, environment: Mapping[str, str], kept: Mapping[str, str]) -> None:
        self._environment = environment
        self._kept = kept
        self.secrets: set[str] = set()

    def expand(self, written: str) -> str:
        """Return the text with every variable expanded.

        Raises:
            BadInput: a variable is not set and has no default, or is not in the vault.
        """
        return _VARIABLE.sub(self._value, written)

    def expand_mapping(self, written: Mapping[str, str]) -> dict[str, str]:
        """Expand variables or headers by name."""
        found = {name: self.expand(value) for name, value in written.items()}
        for name, value in found.items():
            self._remember(name, value)
        return found

    def _value(self, found: re.Match[str]) -> str:
        whence, name, default = found.groups()
        if whence == _VAULT_PREFIX:
            return self._secret(name)
        value = self._environment.get(name)
        if not value and default is not None:
            value = default
        if value is None:
            raise BadInput(f"the variable {name} is not set: set it, or write ${{{name}:-a default}}")
        self._remember(name, value)
        return value

    def _secret(self, name: str) -> str:
        if name not in self._kept:
            raise BadInput(f"the vault has no secret {name}: add it with `waystation secrets set {name}`")
        self._hide(self._kept[name])
        return self._kept[name]

    def _remember(self, name: str, value: str) -> None:
        if _SECRET_NAME.search(name):
            self._hide(value)

    def _hide(self, value: str) -> None:
        bare = value.rpartition(" ")[2]  # of a header, the part after the scheme
        self.secrets.update(one for one in (value, bare) if len(one) >= MIN_SECRET_CHARACTERS)


_EXAMPLE = 'it should look like {"mcpServers": {"time": {"command": "mcp-server-time"}}}'
ToolApprovalMode = Literal["writes", "all", "never"] | tuple[str, ...]
"""Which tools need a person's approval: all; `writes` (the server is trusted to say which only read); none; or those
whose name matches a pattern.
"""
TRANSPORTS = {"stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}
"""Values of a server's `type`, and the field that each needs."""


class StdioTransportConfig(Value):
    """A server that is started here and uses its standard streams."""

    command: str
    arguments: tuple[str, ...] = Field(repr=False)
    environment: dict[str, str] = Field(repr=False)
    folder: Path | None


class HttpTransportConfig(Value):
    """A server that runs elsewhere."""

    url: str = Field(repr=False)
    headers: dict[str, str] = Field(repr=False)


class McpServerConfig(Value):
    """One server, and what may be done with it."""

    name: str
    transport: StdioTransportConfig | HttpTransportConfig
    allow: tuple[str, ...] = ("*",)
    """Patterns of permitted tool names."""
    ask: ToolApprovalMode = "all"
    """A tool that only reads can send out its arguments too, so a server is only trusted if the file says so."""
    timeout_s: float
    """Time limit of one call in seconds."""
    start_s: float
    """Time limit in seconds from the start, or the first message, to the handshake."""
    roles: tuple[AgentRole, ...]
    by_name: bool = False
    """Whether only tasks that name the server have it."""
    secrets: frozenset[str] = Field(default=frozenset(), repr=False)
    """Values that are masked in everything that the server sends."""


class _Entry(Value):
    """A server as written in the file.

    `allow`, `ask`, `timeout`, `start_timeout`, `roles` and `by_name` are our own fields.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    type: str | None = None
    command: str | None = Field(default=None, min_length=1)
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = Field(default=None, pattern=r"^(https?://|\$\{)")
    headers: dict[str, str] = {}
    disabled: bool = False
    allow: tuple[str, ...] = ("*",)
    ask: ToolApprovalMode = "all"
    timeout: float = Field(default=60, gt=0, le=600)
    start_timeout: float = Field(default=60, gt=0, le=600)
    """A server may have to download its program first."""
    roles: tuple[AgentRole, ...] = Field(default=("research",), min_length=1)
    by_name: bool = False

    @model_validator(mode="after")
    def _is_one_thing(self) -> "_Entry":
        if (self.command is None) == (self.url is None):
            raise ValueError("it needs either command or url, not both")
        if self.type is not None and self.type not in TRANSPORTS:
            raise ValueError(f"its type must be one of: {', '.join(TRANSPORTS)}; older transports are not supported")
        if self.type is not None and getattr(self, TRANSPORTS[self.type]) is None:
            raise ValueError(f"a server of type {self.type} needs {TRANSPORTS[self.type]}")
        return self


class _File(Value):
    """Settings other than the servers belong to the client whose file it is."""

    model_config = ConfigDict(hide_input_in_errors=True, extra="ignore")

    mcpServers: dict[str, _Entry]


NO_VAULT_SECRETS: Mapping[str, str] = MappingProxyType({})


def load_servers(
    path: Path, environment: Mapping[str, str], kept: Mapping[str, str] = NO_VAULT_SECRETS
) -> tuple[McpServerConfig, ...]:
    """Load the servers of the file, except those that are disabled there. `kept` maps names to secrets of the vault.

    Raises:
        BadInput: the file cannot be used; the message names the file, the server and the field, never a value.
    """
    with _told(path):
        return tuple(
            _server(name, entry, VariableExpander(environment, kept)) for name, entry in _enabled(path).items()
        )


def list_secret_names(path: Path) -> frozenset[str]:
    """Return the names of the vault's secrets that those servers use.

    Raises:
        BadInput: the file cannot be used.
    """
    with _told(path):
        written = [entry.model_dump_json() for entry in _enabled(path).values()]
        return frozenset(
            name for text in written for whence, name, _ in _VARIABLE.findall(text) if whence == _VAULT_PREFIX
        )


def list_server_names(path: Path) -> tuple[str, ...]:
    """Return the names of those servers, whether or not their variables are set here.

    Raises:
        BadInput: the file cannot be used.
    """
    with _told(path):
        return tuple(_enabled(path))


def _enabled(path: Path) -> dict[str, _Entry]:
    read = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_named_once)
    written = _File.model_validate(read)
    return {name: entry for name, entry in written.mcpServers.items() if not entry.disabled}


@contextmanager
def _told(path: Path) -> Generator[None]:
    """Convert errors to BadInput that says what is wrong with the file and names it."""
    try:
        yield
        return
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except json.JSONDecodeError as error:
        fault = f"is not JSON (line {error.lineno}, column {error.colno}: {error.msg}); {_EXAMPLE}"
    except (RecursionError, UnicodeDecodeError) as error:
        fault = f"is {'nested too deeply' if isinstance(error, RecursionError) else 'not UTF-8'}; {_EXAMPLE}"
    except ValidationError as error:
        faults = [f"{_place(fault.place)}: {fault.words}" for fault in extract_validation_faults(error)]
        fault = f"cannot be used: {'; '.join(faults)}"
    except BadInput as error:
        fault = f"cannot be used: {error}"
    raise BadInput(f"the tool server file {path} {fault}")


def _server(name: str, entry: _Entry, expansion: VariableExpander) -> McpServerConfig:
    try:
        place = _place_of(entry, expansion)
    except BadInput as error:
        raise BadInput(f"mcpServers.{name}: {error}") from None
    return McpServerConfig(
        name=name,
        transport=place,
        secrets=frozenset(expansion.secrets),
        timeout_s=entry.timeout,
        start_s=entry.start_timeout,
        allow=entry.allow,
        ask=entry.ask,
        roles=entry.roles,
        by_name=entry.by_name,
    )


def _place_of(entry: _Entry, expansion: VariableExpander) -> StdioTransportConfig | HttpTransportConfig:
    if entry.url is not None:
        return HttpTransportConfig(url=expansion.expand(entry.url), headers=expansion.expand_mapping(entry.headers))
    assert entry.command is not None  # the entry has one of them
    listed = [found for text in (entry.command, *entry.args) for found in _VARIABLE.findall(text)]
    if kept := [name for whence, name, _ in listed if whence == _VAULT_PREFIX]:
        raise BadInput(
            f"${{secret:{kept[0]}}} must not be in command or args, which every user of the machine can see "
            "in the process list: put it into env"
        )
    return StdioTransportConfig(
        command=expansion.expand(entry.command),
        arguments=tuple(expansion.expand(argument) for argument in entry.args),
        environment=expansion.expand_mapping(entry.env),
        folder=None if entry.cwd is None else Path(expansion.expand(entry.cwd)).expanduser(),
    )


def _named_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject duplicate keys. JSON's own rule is that the last one counts: a server would silently disappear."""
    if (twice := find_duplicate_key(pairs)) is not None:
        raise BadInput(f"the key {twice} is defined twice in the same object")
    return dict(pairs)


def _place(place: tuple[int | str, ...]) -> str:
    """Return the place of an error without the kinds of a field's alternatives, which pydantic adds."""
    return ".".join(str(part) for part in place if not str(part).startswith(("literal[", "tuple["))) or "the file"
