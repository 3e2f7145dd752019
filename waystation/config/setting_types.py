"""Types of settings: parses what people write in the environment and the config file, and reads and writes that
file.
"""

import json
import os
import re
import shlex
import socket
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    HttpUrl,
    JsonValue,
    SecretStr,
    Tag,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from waystation.kernel.amount import LIMIT_FORMAT_HINT, Limit, parse_limit, parse_token_amount
from waystation.kernel.errors import BadInput
from waystation.kernel.files import create_private_folder, ensure_private_file
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import DEFERRED
from waystation.models.endpoints import EndpointRegistry, ModelCapabilities, NamedEndpoint, normalise_base_url
from waystation.models.profiles import (
    ENDPOINT_SEPARATOR,
    MIN_THINKING_TOKENS,
    Effort,
    ThinkingSetting,
    parse_model_name,
)
from waystation.tasks.task import TaskBudget

ADDRESS = compile_bounded(r"https?://([^/?#@\s]*@)?[^/?#@:\s]", re.IGNORECASE)
"""Matches up to the first character of the host."""
_HOST_AND_PORT = compile_bounded(r"\A(?:\[(?P<bracketed>[^\[\]]++)\]|(?P<plain>[^\[\]:]++)):(?P<port>\d{1,5})")


class SettingSection(BaseSettings):
    """A part of `waystation.config.settings.Settings`, with which it is read and compiled."""

    model_config = SettingsConfigDict(**DEFERRED)


def _read_limit(written: object) -> object:
    match written:
        case str():
            return parse_limit(written)
        case bool() | float() | list() | dict():
            raise ValueError(f"write {LIMIT_FORMAT_HINT}")
        case int():
            return Limit(tokens=written)
        case _:
            return written


def _read_tokens(written: object) -> object:
    return parse_token_amount(written) if isinstance(written, str) else written


def _read_thinking(written: object) -> object:
    if written in ("adaptive", "off", "default"):
        return written
    try:
        tokens = _read_tokens(written)
    except ValueError:
        tokens = None
    if isinstance(tokens, int) and tokens >= MIN_THINKING_TOKENS:
        return tokens
    raise ValueError(f"write adaptive, off, default, or a number of tokens (at least {MIN_THINKING_TOKENS:,}), like 4k")


def _read_address(written: SecretStr | None) -> SecretStr | None:
    """Parse a web address. The error does not show it: anyone who knows a webhook's path can post to it."""
    if written is None:
        return None
    if (address := _web_address(written.get_secret_value())) is None:
        raise ValueError(
            "it must be an http or https address with a host and without spaces, like that of a Slack incoming "
            "webhook (the value is not shown, because it may contain a secret)"
        )
    return SecretStr(address)


def _read_page(written: str | None) -> str | None:
    """Parse a page's address, without a slash at its end."""
    if written is None:
        return None
    if (address := _web_address(written)) is None:
        raise ValueError("it must be an http or https address with a host, like https://waystation.example.org")
    return address.rstrip("/")


def _read_hook(written: str | None) -> str | None:
    """Parse a hook. The error does not show it: an argument may contain a secret just as an address may."""
    if written is None:
        return None
    if (read := _web_address(written) if is_hook_address(written) else _command_line(written)) is None:
        raise ValueError(
            "it must be a command line in which every quotation mark is closed, or an http or https address with a "
            "host (the value is not shown, because it may contain a secret)"
        )
    return read


def build_shared_alias(name: str) -> AliasChoices:
    """Build the alias of a setting that other tools read too, under their name or under ours."""
    return AliasChoices(name, f"WAYSTATION_{name}")


def is_hook_address(hook: str) -> bool:
    """Whether a hook is an address, and not a command line."""
    return "://" in next(iter(hook.split()), "")


def _web_address(text: str) -> str | None:
    address = text.strip()
    # pydantic takes the path for the host if there is none, and encodes what it should not.
    if not ADDRESS.match(address) or len(address.split()) != 1:
        return None
    try:
        return str(HttpUrl(address))
    except ValidationError:
        return None


def _read_base_url(written: str | None) -> str | None:
    """Parse the address that `/v1/messages` is appended to."""
    return None if written is None else normalise_base_url(written)


class ListenAddress(NamedTuple):
    """Address to listen on."""

    host: str
    """An IP address."""
    port: int


def parse_listen_address(setting: str, text: str) -> ListenAddress:
    """Parse `127.0.0.1:9464`, `localhost:9464` or `[::1]:9464`.

    Raises:
        BadInput: it cannot be parsed or resolved; the message names the setting.
    """
    found = _HOST_AND_PORT.fullmatch(text)
    port = int(found["port"]) if found else 0
    if found is None or not 0 < port < 65_536:
        raise BadInput(f"{setting} is {text!r}: write it as host:port, like 0.0.0.0:9464")
    try:
        resolved = socket.getaddrinfo(found["bracketed"] or found["plain"], port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadInput(f"{setting} is {text!r}: its host is unknown ({error.strerror})") from error
    return ListenAddress(str(resolved[0][4][0]), port)


def _command_line(text: str) -> str | None:
    try:
        return text if shlex.split(text) else None
    except ValueError:
        return None


def _read_names(written: object) -> object:
    """Parse comma-separated text, as in the environment, or a list, as in the config file."""
    return tuple(name for part in written.split(",") if (name := part.strip())) if isinstance(written, str) else written


def _read_networks(written: object) -> object:
    if not isinstance(written, str):
        return written
    return tuple(_network(name.strip()) for name in written.split(",") if name.strip())


def _network(written: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(written)
    except ValueError as error:
        raise ValueError(f"{written!r} is not a network: write it like 10.1.0.0/16 or fd00::/8") from error


def _read_table(written: object) -> object:
    """Parse a table of the config file, which is JSON in the environment."""
    try:
        return json.loads(written) if isinstance(written, str) else written
    except ValueError as error:
        raise ValueError("it is not valid JSON: correct it, or write it as a table in the config file") from error


WrittenBudget = Annotated[TaskBudget, NoDecode, BeforeValidator(_read_limit)]
"""`600k`, `$2.00` or `600k+$2.00`; in the environment it is not JSON."""
WrittenCap = Annotated[TaskBudget | None, NoDecode, BeforeValidator(_read_limit)]
"""A budget, or none."""
WrittenTokens = Annotated[int | None, BeforeValidator(_read_tokens)]
"""`50k`, `1.5M` or a number."""
WrittenEffort = Literal[Effort, "default"]
WrittenThinking = Annotated[ThinkingSetting | Literal["default"], BeforeValidator(_read_thinking)]
"""`adaptive`, `off`, `default`, or a number of tokens as above."""
WrittenNames = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_read_names)]
"""`en,de`, or a list."""
WrittenPaths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_read_names)]
"""`~/papers,/srv/notes`, or a list."""
WrittenNetworks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode, BeforeValidator(_read_networks)]
"""`10.1.0.0/16,fd00::/8`, or a list."""
WrittenTable = BeforeValidator(_read_table)
"""Together with `NoDecode`, for a setting that is a table."""
TenantWeight = Annotated[float, Field(ge=0.001, le=1_000)]
"""Within the bounds of a Temporal server, which takes a value outside for the nearest one inside."""
WrittenHook = Annotated[str | None, AfterValidator(_read_hook)]
"""A command line, or an http or https URL, normalised."""
WrittenBaseUrl = Annotated[str | None, AfterValidator(_read_base_url)]
"""An http or https address of an endpoint that speaks the Messages protocol."""
PageAddress = Annotated[str | None, AfterValidator(_read_page)]
SecretAddress = Annotated[SecretStr | None, AfterValidator(_read_address)]
"""An http or https URL, normalised."""


CONFIG_NAME = "config.toml"
ENVIRONMENT_PREFIX = "WAYSTATION_"
"""Prefix of environment variables."""
NESTING_SEPARATOR = "__"
"""Separates the name of a table and of a value in it in a variable's name."""
NOT_IN_A_FILE = {
    "home": "the value determines where the config file is",
    "config": "the value determines where the config file is",
    "store_url": "the value may contain a password",
    "anthropic_api_key": "the value is a secret",
    "qdrant_api_key": "the value is a secret",
    "key": "the value is a secret",
    "previous_keys": "the value contains secrets",
    "placeholder_key": "the value is a secret",
    "codec_token": "the value is a secret",
    "token": "the value is a secret",
    "embedder_key": "the value is a secret",
    "voyage_api_key": "the value is a secret",
    "webhook": "the value contains a secret",
    "notify": "the value contains secrets",
}
"""Settings that only the environment may contain, and why."""


def read_config(path: Path, fields: Mapping[str, FieldInfo], *, must_exist: bool) -> dict[str, object]:
    """Read the file, by names of settings; empty if there is no file and none must exist.

    Errors never show values, which may be secret.

    Raises:
        BadInput: the file cannot be read, or a name is not a setting or belongs in the environment.
    """
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not must_exist:
            return {}
        raise BadInput(f"the config file {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"the config file {path} is not valid TOML: {error}") from error
    for name in written:
        if fault := _fault(name, fields):
            raise BadInput(f"the config file {path} cannot contain {name}: {fault}")
    return written


def write_table(path: Path, names: Sequence[str], row: Mapping[str, JsonValue]) -> None:
    """Write a table of plain values into the file, replacing an earlier one; everything else stays unchanged.

    Raises:
        BadInput: the file cannot be used, or has the table in another form.
    """
    head = f"[{'.'.join((names[0], *map(json.dumps, names[1:])))}]"
    try:
        before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        said = [head, *(f"{name} = {json.dumps(value)}" for name, value in row.items())]
        after = "\n".join([*_without_table(before, head), *said]) + "\n"
        tomllib.loads(after)
        if not path.exists():
            create_private_folder(path.parent)
            ensure_private_file(path)
        path.write_text(after, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the config file {path} cannot be written: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(
            f"cannot add the table {head} to the config file {path}: write {names[0]} in that file as tables with "
            f"headings like [{names[0]}.…]"
        ) from error


def _without_table(lines: Sequence[str], head: str) -> Iterator[str]:
    inside = False
    for line in lines:
        inside = line.strip() == head or (inside and not line.lstrip().startswith("["))
        if not inside:
            yield line


def make_variable_name(path: str) -> str:
    """Return the variable for a setting, or for one value of a table, like `roles.writing.model`."""
    return f"{ENVIRONMENT_PREFIX}{path.upper().replace('.', NESTING_SEPARATOR)}"


def list_setting_variables(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return the variables for a setting, the strongest first."""
    if isinstance(field.validation_alias, AliasChoices):
        return tuple(str(choice) for choice in field.validation_alias.choices)
    return (make_variable_name(name),)


def _fault(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return why the file must not contain this; empty if it may."""
    meant = next((field for field in fields if _means(name, field, list_setting_variables(field, fields[field]))), None)
    if meant is None:
        close = get_close_matches(name.lower(), fields.keys() - NOT_IN_A_FILE.keys(), n=1)
        return "there is no such setting" + (f"; did you mean {close[0]}?" if close else "")
    if meant in NOT_IN_A_FILE:
        variable = list_setting_variables(meant, fields[meant])[0]
        return f"{NOT_IN_A_FILE[meant]}; set {variable} in the environment instead"
    return "" if name == meant else f"use the name {meant} in the file"


def _means(name: str, field: str, variables: Collection[str]) -> bool:
    """Whether the name means this field, also in capitals, by a variable's name, or with hyphens."""
    said = name.upper().replace("-", "_")
    return said == field.upper() or said in variables


def _named(table: object) -> str:
    """Return whether a table of `endpoints` describes an endpoint, or the capabilities of models at an address."""
    return "endpoint" if isinstance(table, NamedEndpoint) or (isinstance(table, dict) and "kind" in table) else "models"


_Rows = dict[str, ModelCapabilities]
_EndpointTable = Annotated[
    Annotated[NamedEndpoint, Tag("endpoint")] | Annotated[_Rows, Tag("models")], Discriminator(_named)
]


def _well_named(tables: dict[str, _EndpointTable]) -> dict[str, _EndpointTable]:
    """Check the names of endpoints and their fallbacks.

    Raises:
        ValueError: a name could not begin a full model name, or a fallback does not exist.
    """
    bad = [
        name for name in filter_named_endpoints(tables) if not parse_model_name(f"{name}{ENDPOINT_SEPARATOR}m").endpoint
    ]
    if bad:
        raise ValueError(f"{bad[0]!r} is not a valid name for an endpoint: use lower-case letters, digits and hyphens")
    for name, other in EndpointRegistry(named=filter_named_endpoints(tables)).unknown_fallbacks:
        raise ValueError(
            f"{other!r}, the fallback of the endpoint {name}, is neither an endpoint in these settings nor a known "
            f"model: write the name of an endpoint, or ENDPOINT{ENDPOINT_SEPARATOR}MODEL"
        )
    return tables


def filter_named_endpoints(tables: Mapping[str, NamedEndpoint | _Rows]) -> dict[str, NamedEndpoint]:
    """Return the tables that describe an endpoint."""
    return {name: table for name, table in tables.items() if isinstance(table, NamedEndpoint)}


WrittenEndpoints = Annotated[dict[str, _EndpointTable], NoDecode, WrittenTable, AfterValidator(_well_named)]


_SPAN_LIMITS = (
    *(f"OTEL_{of}ATTRIBUTE_COUNT_LIMIT" for of in ("", "SPAN_", "EVENT_", "LINK_")),
    *(f"OTEL_{of}ATTRIBUTE_VALUE_LENGTH_LIMIT" for of in ("", "SPAN_")),
    *(f"OTEL_SPAN_{of}_COUNT_LIMIT" for of in ("EVENT", "LINK")),
)
_BATCH_SIZE, _QUEUE_SIZE = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_MAX_QUEUE_SIZE"
_BATCHES = {_BATCH_SIZE: 512, _QUEUE_SIZE: 2_048, "OTEL_BSP_SCHEDULE_DELAY": 5_000, "OTEL_BSP_EXPORT_TIMEOUT": 30_000}
"""With OpenTelemetry's defaults."""
_RATIOS = frozenset({"traceidratio", "parentbased_traceidratio"})
_SAMPLERS = (
    frozenset({f"{based}always_{switch}" for based in ("", "parentbased_") for switch in ("on", "off")}) | _RATIOS
)
_SECONDS_AT_MOST = 86_400.0


def iter_trace_setting_faults(given: Mapping[str, str]) -> Iterator[str]:
    """Yield trace settings for which OpenTelemetry's SDK would end the process, or which it would silently ignore.

    They are named by variable; values are not shown.
    """
    for name in _SPAN_LIMITS:
        if given.get(name, "").strip() and _whole(given[name]) is None:
            yield f"{name}: it must be a whole number"
    sizes = {name: _whole(given[name]) if name in given else usual for name, usual in _BATCHES.items()}
    yield from (f"{name}: it must be a whole number above 0" for name, size in sizes.items() if not size)
    if (sizes[_BATCH_SIZE] or 0) > (sizes[_QUEUE_SIZE] or 0):
        usual, most = _BATCHES[_BATCH_SIZE], _BATCHES[_QUEUE_SIZE]
        yield f"{_BATCH_SIZE} (default: {usual}) must not exceed {_QUEUE_SIZE} (default: {most})"
    sampler = given.get("OTEL_TRACES_SAMPLER", "always_on").lower()
    if sampler not in _SAMPLERS:
        yield f"OTEL_TRACES_SAMPLER: it must be one of {', '.join(sorted(_SAMPLERS))}"
    if sampler in _RATIOS and not 0 <= _number(given.get("OTEL_TRACES_SAMPLER_ARG", "1")) <= 1:
        yield "OTEL_TRACES_SAMPLER_ARG: it must be a number from 0 to 1"
    yield from _export_faults(given)


def _export_faults(given: Mapping[str, str]) -> Iterator[str]:
    """Yield faults of the variables for OTLP export, those of traces and the general ones."""

    def meant(name: str) -> tuple[str, str]:
        own, shared_one = f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"
        return (own, given[own]) if own in given else (shared_one, given.get(shared_one, ""))

    named, seconds = meant("TIMEOUT")
    if seconds and not 0 < _number(seconds) <= _SECONDS_AT_MOST:
        yield f"{named}: it must be a number of seconds above 0, up to a day"
    named, compression = meant("COMPRESSION")
    if compression.strip().lower() not in {"", "none", "gzip", "deflate"}:
        yield f"{named}: it must be none, gzip or deflate"
    for named, path in map(meant, ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")):
        if path and not os.access(path, os.R_OK):
            yield f"{named}: the file does not exist or cannot be read"


def _whole(written: str) -> int | None:
    digits = written.strip()
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS else None


def _number(written: str) -> float:
    """Return the number, or -1, which is below any valid value, if it is not a number."""
    try:
        return float(written)
    except ValueError:
        return -1.0


_MAX_DIGITS = 9
