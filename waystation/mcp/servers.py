"""Implements `ToolServers` for the servers of a config file: filters and cleans tools, and bounds results."""

import asyncio
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from time import monotonic
from typing import NamedTuple, Protocol

from jsonschema import Draft202012Validator, SchemaError
from mcp import Client, MCPError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)
from pydantic import JsonValue

from waystation.kernel.errors import ToolServerFailed
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import find_json_fault
from waystation.mcp.config import McpServerConfig
from waystation.mcp.session import MESSAGE_BYTES, TOO_LONG_WORDS, McpServerSession
from waystation.mcp.supervisor import TOO_LONG_ERROR_CODE
from waystation.security.confusables import UNSEEN
from waystation.security.untrusted import (
    DEFAULT_SERVERS,
    MAX_RESULT_CHARACTERS,
    HiddenTool,
    UntrustedToolName,
    UntrustedToolResult,
    UntrustedTools,
    UntrustedToolSpec,
    assign_model_tool_names,
    escape_control_characters_in_json,
    escape_tags,
    sanitize_line,
    strip_invisible_characters,
)

MAX_TOOLS = 128
"""Maximum number of tools of one server."""
_DESCRIPTION_CHARACTERS = 2_000
SCHEMA_CHARACTERS = 16_000
"""Maximum characters of a schema as JSON: about 4,000 tokens, twice what all tools together should have."""
SERVER_SCHEMA_CHARACTERS = 400_000
"""Maximum characters of all schemas of a server, including those of tools that are not allowed: checking takes time."""
LISTING_CHARACTERS = 4 * 1024 * 1024
"""Maximum characters of a server's whole tool list as JSON, over all pages. Each page is one message, which is bounded
too.
"""
MAX_LISTED_ITEMS = 100
"""Maximum items of a list in a schema that are not all strings or all numbers."""
ARGUMENT_CHARACTERS = 500
"""Maximum characters of the description of one argument."""
MAX_NAME_CHARACTERS = 200
_REMARKS = frozenset({"$comment", "title", "examples"})
"""Keywords of a schema that do not restrict arguments."""
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that contain schemas by names that are not keywords."""
_DATA = frozenset({"enum", "const", "default", "required", "dependentRequired", "pattern"})
"""Keywords with values that a server compares."""
_REPEATED = frozenset({"enum", "const", "default", "pattern"})
"""Those of them in which a server may repeat a secret."""
_PROPERTY = compile_bounded(r"[a-zA-Z0-9_.-]{1,64}")
"""Argument names that the Messages API accepts."""
_CHOICES = ("oneOf", "anyOf", "allOf")
"""Keywords that the Messages API rejects at the top level of a schema."""


class _Checks(Protocol):
    def __call__(self, schema: Mapping[str, JsonValue]) -> None: ...


_check_schema: _Checks = Draft202012Validator.check_schema


def filter_server_tools(
    server: McpServerConfig, tools: Sequence[Tool], *, is_cut: bool = False
) -> tuple[list[UntrustedToolSpec], list[HiddenTool]]:
    """Return the tools that agents may be shown, each with its server's name for it, and the hidden ones.

    A tool must be allowed, and acceptable to the Messages API as it is.

    Args:
        server: configuration of the server.
        tools: tools that it offers.
        is_cut: whether the server had more tools to list than were requested.
    """
    specs: list[UntrustedToolSpec] = []
    hidden: list[HiddenTool] = []
    room = SERVER_SCHEMA_CHARACTERS
    for tool in tools[:MAX_TOOLS]:
        size = 0 if find_json_fault(tool.input_schema) else len(json.dumps(tool.input_schema))
        room -= size if size <= SCHEMA_CHARACTERS else 0  # larger ones are not examined
        reason = _refused(server, tool, room) or (
            "the server has another tool with this name" if tool.name in {spec.tool for spec in specs} else ""
        )
        if reason:
            shown = "".join(one if _is_seen(one) else "?" for one in tool.name[:MAX_NAME_CHARACTERS])
            hidden.append(HiddenTool(server=server.name, tool=shown, reason=reason))
        else:
            specs.append(_spec(server, tool))
    if len(tools) > MAX_TOOLS:
        reason = f"the server has more than {MAX_TOOLS} tools; the rest are left out"
        hidden.append(HiddenTool(server=server.name, tool="", reason=reason))
    elif is_cut:
        reason = (
            f"the tool server {server.name} sends more than {LISTING_CHARACTERS:,} characters of tool "
            "descriptions; the rest was not requested"
        )
        hidden.append(HiddenTool(server=server.name, tool="", reason=reason))
    return specs, hidden


def _refused(server: McpServerConfig, tool: Tool, room: int) -> str:
    if not any(fnmatchcase(tool.name, pattern) for pattern in server.allow):
        return "the config file does not allow this tool"
    if len(tool.name) > MAX_NAME_CHARACTERS:
        return f"its name has {len(tool.name):,} characters; at most {MAX_NAME_CHARACTERS} are accepted"
    if not all(map(_is_seen, tool.name)):
        return "its name has invisible characters"
    if room < 0:
        return f"the schemas of its server have more than {SERVER_SCHEMA_CHARACTERS:,} characters in total"
    return _unusable(tool.input_schema) or _hiding(_schema(server, tool.input_schema))


def _is_seen(sign: str) -> bool:
    return sign.isprintable() and sign not in UNSEEN


def _hiding(schema: dict[str, JsonValue]) -> str:
    """Return why a tool is hidden if its schema has invisible characters, in which words could hide; empty if not."""
    written = json.dumps(schema, ensure_ascii=False)
    return "" if escape_control_characters_in_json(written) == written else "its schema has invisible characters"


def _unusable(schema: dict[str, JsonValue]) -> str:
    """Return why a schema cannot be sent to a model; empty if it can.

    A rejected one would get every request rejected.
    """
    # The Messages API would reject every request of every agent that contains it.
    if fault := find_json_fault(schema):
        return f"its schema has {fault}, which many JSON parsers reject"
    size = len(json.dumps(schema))
    if size > SCHEMA_CHARACTERS:
        return f"its schema has {size:,} characters; at most {SCHEMA_CHARACTERS:,} are accepted"
    if schema.get("type") != "object" or any(choice in schema for choice in _CHOICES):
        return (
            "the top level of its schema must have the type object, and none of oneOf, anyOf and allOf: models accept "
            "no other schema"
        )
    properties = schema.get("properties", {})
    if isinstance(properties, dict) and not all(map(_PROPERTY.fullmatch, properties)):
        return (
            "its schema has an argument whose name is not 1 to 64 letters, digits, dots, hyphens or underscores: "
            "models accept no other names"
        )
    if any(map(_is_slow, _lists(schema))):
        return f"its schema has a list of over {MAX_LISTED_ITEMS} values that are neither all words nor all numbers"
    try:
        _check_schema(schema)
    except (SchemaError, RecursionError):
        return "its schema is not valid JSON Schema"
    return ""


def _lists(value: JsonValue) -> Iterator[list[JsonValue]]:
    """Yield every list in a schema, at any depth."""
    left: list[JsonValue] = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            yield one
        left += one if isinstance(one, list) else one.values() if isinstance(one, dict) else ()


def _is_slow(found: list[JsonValue]) -> bool:
    """Whether checking the list is slow: items that cannot be sorted are compared pairwise and tried one by one."""
    if len(found) <= MAX_LISTED_ITEMS:
        return False
    return not (all(isinstance(one, str) for one in found) or all(type(one) in {int, float} for one in found))


def _spec(server: McpServerConfig, tool: Tool) -> UntrustedToolSpec:
    hints = tool.annotations
    read_only = hints is not None and hints.read_only_hint is True
    return UntrustedToolSpec(
        server=server.name,
        tool=tool.name,
        name=tool.name,
        description=_description(server, tool.description or ""),
        input_schema=_schema(server, tool.input_schema),
        read_only=read_only,
        idempotent=hints is not None and hints.idempotent_hint is True,
        requires_approval=_asks(server, tool.name, read_only=read_only),
        roles=server.roles,
    )


def _asks(server: McpServerConfig, tool: str, *, read_only: bool) -> bool:
    """Whether a person must approve calls, by the config file. The server's own claims count if the file says so."""
    match server.ask:
        case "all":
            return True
        case "never":
            return False
        case "writes":
            return not read_only
        case patterns:
            return any(fnmatchcase(tool, pattern) for pattern in patterns)


def _description(server: McpServerConfig, words: str) -> str:
    return (
        f"[Tool server {sanitize_line(server.name)}, in its own words] {_words(server, words, _DESCRIPTION_CHARACTERS)}"
    )


def _words(server: McpServerConfig, words: str, maximum: int) -> str:
    """Clean words of the server into one paragraph: text after an empty line would look like someone else's."""
    seen = strip_invisible_characters(mask_secrets(words, server.secrets))
    plain = mask_secrets(seen, server.secrets)  # one may have been split by invisible characters
    cut = plain if len(plain) <= maximum else f"{plain[:maximum]} (cut here)"
    return escape_tags(cut)


def _schema(server: McpServerConfig, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema with its words cleaned like the description; the parts that check arguments stay unchanged."""
    return {key: _part(server, key, value) for key, value in schema.items() if key not in _REMARKS}


def _part(server: McpServerConfig, key: str, value: JsonValue) -> JsonValue:
    match value:
        case str() if key == "description":
            return _words(server, value, ARGUMENT_CHARACTERS)
        case dict() if key in _BY_NAME:
            return {name: _part(server, "", part) for name, part in value.items()}
        case dict() if key not in _DATA:
            return _schema(server, value)
        case list() if key not in _DATA:
            return [_part(server, "", part) for part in value]
        case str() if key in _REPEATED:
            return mask_secrets(value, server.secrets)
        case dict() if key in _REPEATED:
            return {name: _part(server, key, part) for name, part in value.items()}
        case list() if key in _REPEATED:
            return [_part(server, key, part) for part in value]
        case _:
            return value


BEYOND_CHARACTERS = 20_000
"""Characters passed on beyond what is kept: private data across that position is only found as a whole."""
_LABEL_CHARACTERS = 300
"""Maximum characters of an address or a type in our own lines."""
BASE64_BYTES = 3 / 4
"""Bytes for each character."""


def build_untrusted_result(result: CallToolResult, secrets: Iterable[str]) -> UntrustedToolResult:
    """Render the result's blocks as text; structured content only if there are none, since it repeats them.

    Anything that is not text becomes a line that says what was left out.
    """
    blocks = [_text(block) for block in result.content]
    if not blocks and result.structured_content is not None:
        blocks = [json.dumps(result.structured_content, ensure_ascii=False, indent=1)]
    whole = "\n".join(blocks) or "(The tool returned nothing.)"
    return truncate_tool_text(mask_secrets(whole, secrets), is_error=result.is_error)


def truncate_tool_text(text: str, *, is_error: bool) -> UntrustedToolResult:
    """Return the text, or its beginning with its total length."""
    most = MAX_RESULT_CHARACTERS + BEYOND_CHARACTERS
    return UntrustedToolResult(text=text[:most], characters=len(text) if len(text) > most else 0, is_error=is_error)


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _left_out(f"an {block.type}", block.mime_type, block.data)
        case ResourceLink():
            return f"(A link to {_label(block.uri)}; it was not followed.)"
        case EmbeddedResource():
            return _resource(block.resource)


def _resource(resource: TextResourceContents | BlobResourceContents) -> str:
    match resource:
        case TextResourceContents():
            return f"(From {_label(resource.uri)}:)\n{resource.text}"
        case BlobResourceContents():
            return _left_out(f"a file, {_label(resource.uri)},", resource.mime_type or "unknown", resource.blob)


def _left_out(what: str, kind: str, base64: str) -> str:
    size = int(len(base64) * BASE64_BYTES)
    named = f"{what[0].upper()}{what[1:]} of type {_label(kind)} and about {size:,} bytes"
    return f"({named} was left out: it is not text.)"


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Mask secrets of the config file in text from the server. Longest first: one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    return text


def _label(text: str) -> str:
    return " ".join(text[:_LABEL_CHARACTERS].split())


RETRY_LISTING_AFTER_S = 60.0
"""A server whose tool list failed is asked again after this many seconds."""
LISTING_CACHE_S = 2.0
"""How long a tool list is considered current, in seconds: about as long as the calls of one reply take to start."""


@dataclass(frozen=True)
class _Listing:
    tools_hash: str = ""
    """Hash of the tool list; empty if it cannot be serialised. The tools themselves may be large."""
    specs: Sequence[UntrustedToolSpec] = ()
    hidden: Sequence[HiddenTool] = ()
    connection_number: int = 0
    """Number of the server's connection on which it was listed."""
    valid_until: float = 0.0
    """Monotonic time in seconds; after it, a tool is checked before it is called."""
    retry_at: float = 0.0
    """Monotonic time in seconds; after it, the server is asked again for an agent that starts."""


class McpServers:
    """Implements `ToolServers`. Connections belong to the event loop that first used them; close it there."""

    def __init__(self, servers: Sequence[McpServerConfig], fresh_s: float = LISTING_CACHE_S) -> None:
        self._fresh_s = fresh_s
        self._sessions = {server.name: McpServerSession(server) for server in servers}
        self._listings: dict[str, _Listing] = {}
        self._listing = {server.name: asyncio.Lock() for server in servers}
        """One lock each: a slow server only delays tasks that use it."""

    async def list_tools(self, taken: Collection[str] = (), servers: Sequence[str] | None = None) -> UntrustedTools:
        """See `ToolServers`. Servers are asked concurrently; those that are not wanted are not started."""
        named = frozenset([DEFAULT_SERVERS] if servers is None else servers)
        wanted = [one for one in self._sessions.values() if _is_wanted(one.server, named)]
        missing = [
            HiddenTool(server=one, tool="", reason=_NOT_THERE)
            for one in sorted(named - {DEFAULT_SERVERS, *self._sessions})
        ]
        listings = await asyncio.gather(*map(self._listed, wanted))
        specs = list(chain.from_iterable(listing.specs for listing in listings))
        names = assign_model_tool_names([UntrustedToolName(spec.server, spec.tool) for spec in specs], taken)
        return UntrustedTools(
            tools=tuple(spec.replace(name=names[UntrustedToolName(spec.server, spec.tool)]) for spec in specs),
            hidden=(*chain.from_iterable(listing.hidden for listing in listings), *missing),
        )

    async def call_tool(self, spec: UntrustedToolSpec, arguments: dict[str, JsonValue]) -> UntrustedToolResult:
        """See `ToolServers`."""
        session = self._sessions.get(spec.server)
        if session is None:
            raise ToolServerFailed(f"the tool server {spec.server} is no longer in the config file")
        server = session.server
        try:
            async with session.call(server.timeout_s) as client:
                await self._require_same(session, client, spec)
                return build_untrusted_result(await _called(client, spec.tool, arguments), server.secrets)
        except MCPError as error:
            if error.code == TOO_LONG_ERROR_CODE or TOO_LONG_WORDS in error.message:
                words = f"The result was left out: it has more than {MESSAGE_BYTES:,} bytes. Ask for less."
            else:
                words = mask_secrets(error.message, server.secrets)
            return truncate_tool_text(words, is_error=True)

    async def _require_same(self, session: McpServerSession, client: Client, spec: UntrustedToolSpec) -> None:
        """Check that a tool has not changed, since a server may change its tools while it runs.

        Of several calls in quick succession, the first is checked.

        Raises:
            ToolServerFailed: the tool has changed, or the server does not answer.
        """
        server = session.server
        known = self._listings.get(server.name, _Listing())
        if known.connection_number != session.opened or known.valid_until < monotonic():
            known = self._listings[server.name] = await self._told(session, client, known)
        now = next((one for one in known.specs if one.tool == spec.tool), None)
        if now is None or not now.is_same_definition(spec):
            raise ToolServerFailed(
                f"the tool {spec.tool} of the tool server {server.name} has changed or disappeared since its "
                "definition was read"
            )

    async def aclose(self) -> None:
        """End the servers that were started here, and close all connections."""
        await asyncio.gather(*(session.aclose() for session in self._sessions.values()))

    async def _listed(self, session: McpServerSession) -> _Listing:
        name = session.server.name
        async with self._listing[name]:
            known = self._listings.get(name, _Listing())
            if known.connection_number != session.opened or known.retry_at < monotonic():
                known = self._listings[name] = await self._asked(session, known)
            return known

    async def _asked(self, session: McpServerSession, before: _Listing) -> _Listing:
        """List the tools of a server.

        If it does not answer, the last list is kept, if any: its tools fail when they are called.
        """
        server = session.server
        try:
            async with session.call(server.timeout_s) as client:
                return await self._told(session, client, before)
        except ToolServerFailed as failure:
            reason = str(failure)
        except MCPError:
            reason = f"the tool server {server.name} does not list its tools"
        missed = before.hidden if before.specs else (HiddenTool(server=server.name, tool="", reason=reason),)
        return replace(
            before,
            hidden=missed,
            connection_number=session.opened,
            valid_until=0.0,
            retry_at=monotonic() + RETRY_LISTING_AFTER_S,
        )

    async def _told(self, session: McpServerSession, client: Client, before: _Listing) -> _Listing:
        tools, told, is_cut = await _all_tools(client)
        until = monotonic() + self._fresh_s
        if before.specs and told and told == before.tools_hash:
            return replace(before, connection_number=session.opened, valid_until=until, retry_at=until)
        specs, hidden = await asyncio.to_thread(filter_server_tools, session.server, tools, is_cut=is_cut)
        return _Listing(told, specs, hidden, session.opened, until, until)


_NOT_THERE = "the config file of the worker has no tool server with this name"


def _is_wanted(server: McpServerConfig, named: Collection[str]) -> bool:
    return server.name in named or (DEFAULT_SERVERS in named and not server.by_name)


async def _called(client: Client, tool: str, arguments: dict[str, JsonValue]) -> CallToolResult:
    """Call the tool without `Client.call_tool`.

    That would validate a result by the server's own schema, whose patterns could run for ever.
    """
    request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
    return await client.session.send_request(request, CallToolResult)


class _Tools(NamedTuple):
    tools: Sequence[Tool]
    tools_hash: str
    """See `_Listing`."""
    is_cut: bool
    """Whether the server has more tools than are accepted."""


async def _all_tools(client: Client) -> _Tools:
    """List the tools page by page until there are too many, or they are too large together: some servers never end."""
    found: list[Tool] = []
    size, digest, is_known = 0, hashlib.sha256(), True
    page = await client.list_tools()
    while True:
        found.extend(page.tools)
        written = await asyncio.to_thread(_written, page.tools)
        # What cannot be serialised counts as the longest message that may have brought it.
        size += MESSAGE_BYTES if written is None else len(written)
        is_known = is_known and written is not None
        digest.update(written or b"")
        ends = page.next_cursor is None or not page.tools or len(found) > MAX_TOOLS
        if ends or size > LISTING_CHARACTERS:
            return _Tools(found, digest.hexdigest() if is_known else "", is_cut=not ends)
        page = await client.list_tools(cursor=page.next_cursor)


def _written(tools: Sequence[Tool]) -> bytes | None:
    """Serialise the tools as ASCII JSON; None if that is impossible, as for numbers with thousands of digits."""
    try:
        return json.dumps(list(tools), default=dict).encode()
    except (TypeError, ValueError, RecursionError):
        return None
