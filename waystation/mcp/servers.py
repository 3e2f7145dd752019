"""All tool servers of a config file, as one `ToolServers`.

Which of a server's tools are taken over: those that are allowed, and that the Messages API takes as they are.

What a tool returned as text of a bounded size: what is no text becomes a line that says what was left out.
"""

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
"""Of one server."""
_DESCRIPTION_CHARACTERS = 2_000
SCHEMA_CHARACTERS = 16_000
"""As JSON: about 4,000 tokens, twice of what all tools together should have."""
SERVER_SCHEMA_CHARACTERS = 400_000
"""Of all tools of a server, those that are not allowed, too: what is checked takes time."""
LISTING_CHARACTERS = 4 * 1024 * 1024
"""As JSON, of all that a server tells of its tools, page by page. A page is one message, and so has its bound, too."""
MAX_LISTED_ITEMS = 100
"""Items of a list in a schema that are not all words or all numbers."""
ARGUMENT_CHARACTERS = 500
"""Of the description of one argument."""
MAX_NAME_CHARACTERS = 200
_REMARKS = frozenset({"$comment", "title", "examples"})
"""Words in a schema that say nothing of what may be given."""
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""What holds schemas by names that are not its keywords."""
_DATA = frozenset({"enum", "const", "default", "required", "dependentRequired", "pattern"})
"""Values themselves, which a server compares."""
_REPEATED = frozenset({"enum", "const", "default", "pattern"})
"""Those of them in which a server may repeat a secret."""
_PROPERTY = compile_bounded(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of arguments that the Messages API takes."""
_CHOICES = ("oneOf", "anyOf", "allOf")
"""What the Messages API refuses at the top of a schema."""


class _Checks(Protocol):
    def __call__(self, schema: Mapping[str, JsonValue]) -> None: ...


_check_schema: _Checks = Draft202012Validator.check_schema


def filter_server_tools(
    server: McpServerConfig, tools: Sequence[Tool], *, is_cut: bool = False
) -> tuple[list[UntrustedToolSpec], list[HiddenTool]]:
    """What agents may be shown, each still under the name that its server gave it, and what not. `is_cut`: the server
    had more to tell of its tools than was asked for.
    """
    specs: list[UntrustedToolSpec] = []
    hidden: list[HiddenTool] = []
    room = SERVER_SCHEMA_CHARACTERS
    for tool in tools[:MAX_TOOLS]:
        size = 0 if find_json_fault(tool.input_schema) else len(json.dumps(tool.input_schema))
        room -= size if size <= SCHEMA_CHARACTERS else 0  # larger ones are not looked into
        reason = _refused(server, tool, room) or (
            "the server has another tool of that name" if tool.name in {spec.tool for spec in specs} else ""
        )
        if reason:
            shown = "".join(one if _is_seen(one) else "?" for one in tool.name[:MAX_NAME_CHARACTERS])
            hidden.append(HiddenTool(server=server.name, tool=shown, reason=reason))
        else:
            specs.append(_spec(server, tool))
    if len(tools) > MAX_TOOLS:
        reason = f"the server has more than {MAX_TOOLS} tools; the rest is left out"
        hidden.append(HiddenTool(server=server.name, tool="", reason=reason))
    elif is_cut:
        reason = (
            f"the tool server {server.name} tells more than {LISTING_CHARACTERS:,} characters of its tools; "
            "the rest was not asked for"
        )
        hidden.append(HiddenTool(server=server.name, tool="", reason=reason))
    return specs, hidden


def _refused(server: McpServerConfig, tool: Tool, room: int) -> str:
    if not any(fnmatchcase(tool.name, pattern) for pattern in server.allow):
        return "the config file does not allow it"
    if len(tool.name) > MAX_NAME_CHARACTERS:
        return f"its name has {len(tool.name):,} characters; {MAX_NAME_CHARACTERS} are taken"
    if not all(map(_is_seen, tool.name)):
        return "its name has characters that nobody sees"
    if room < 0:
        return f"the schemas of its server have more than {SERVER_SCHEMA_CHARACTERS:,} characters together"
    return _unusable(tool.input_schema) or _hiding(_schema(server, tool.input_schema))


def _is_seen(sign: str) -> bool:
    return sign.isprintable() and sign not in UNSEEN


def _hiding(schema: dict[str, JsonValue]) -> str:
    """Why it is left out where words could hide in what a server compares, which stays as it is."""
    written = json.dumps(schema, ensure_ascii=False)
    return "" if escape_control_characters_in_json(written) == written else "its schema has characters that nobody sees"


def _unusable(schema: dict[str, JsonValue]) -> str:
    """Why a schema cannot be handed to a model: one that is refused would have every request refused."""
    # The Messages API would refuse every request that has it, of every agent.
    if fault := find_json_fault(schema):
        return f"its schema has {fault}, which JSON cannot carry"
    size = len(json.dumps(schema))
    if size > SCHEMA_CHARACTERS:
        return f"its schema has {size:,} characters; {SCHEMA_CHARACTERS:,} are taken"
    if schema.get("type") != "object" or any(choice in schema for choice in _CHOICES):
        return "its schema is not of one object: models take no other"
    properties = schema.get("properties", {})
    if isinstance(properties, dict) and not all(map(_PROPERTY.fullmatch, properties)):
        return "its schema has an argument whose name models do not take"
    if any(map(_is_slow, _lists(schema))):
        return f"its schema has a list of more than {MAX_LISTED_ITEMS} that are neither all words nor all numbers"
    try:
        _check_schema(schema)
    except (SchemaError, RecursionError):
        return "its schema is not valid JSON Schema"
    return ""


def _lists(value: JsonValue) -> Iterator[list[JsonValue]]:
    """Every list in a schema, at any depth."""
    left: list[JsonValue] = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            yield one
        left += one if isinstance(one, list) else one.values() if isinstance(one, dict) else ()


def _is_slow(found: list[JsonValue]) -> bool:
    """The check compares items that cannot be sorted with each other, and tries a schema against each of others."""
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
        asks=_asks(server, tool.name, read_only=read_only),
        roles=server.roles,
    )


def _asks(server: McpServerConfig, tool: str, *, read_only: bool) -> bool:
    """By the config file. What the server says of itself counts where the file says that it does."""
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


def _words(server: McpServerConfig, words: str, most: int) -> str:
    """In one paragraph: what follows an empty line would look like somebody else's."""
    seen = strip_invisible_characters(mask_secrets(words, server.secrets))
    plain = mask_secrets(seen, server.secrets)  # one may have been parted by what nobody sees
    cut = plain if len(plain) <= most else f"{plain[:most]} (cut here)"
    return escape_tags(cut)


def _schema(server: McpServerConfig, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema with its words cleaned as the description is; what arguments are checked by stays as it is."""
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
"""Handed on beyond what is kept: what private lies across the end is found only as a whole."""
_LABEL_CHARACTERS = 300
"""Most of an address or a kind in a line of ours."""
BASE64_BYTES = 3 / 4
"""Bytes for each character."""


def build_untrusted_result(result: CallToolResult, secrets: Iterable[str]) -> UntrustedToolResult:
    """Its blocks as text; structured content only where there are none, since it repeats them."""
    blocks = [_text(block) for block in result.content]
    if not blocks and result.structured_content is not None:
        blocks = [json.dumps(result.structured_content, ensure_ascii=False, indent=1)]
    whole = "\n".join(blocks) or "(The tool returned nothing.)"
    return truncate_tool_text(mask_secrets(whole, secrets), is_error=result.is_error)


def truncate_tool_text(text: str, *, is_error: bool) -> UntrustedToolResult:
    """The text, or its beginning with how long it was."""
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
    return f"({what[0].upper()}{what[1:]} of type {_label(kind)} and about {size:,} bytes was left out: it is no text.)"


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text without values of the config file that a server repeats. Longest first: one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    return text


def _label(text: str) -> str:
    return " ".join(text[:_LABEL_CHARACTERS].split())


RETRY_LISTING_AFTER_S = 60.0
"""A server that did not tell its tools is asked again after this."""
LISTING_CACHE_S = 2.0
"""So long what a server told of its tools is taken for true: about as long as the calls of one reply take to begin."""


@dataclass(frozen=True)
class _Listing:
    told: str = ""
    """The hash of what the server told; empty if that cannot be written. The tools themselves may be large."""
    specs: Sequence[UntrustedToolSpec] = ()
    hidden: Sequence[HiddenTool] = ()
    told_on: int = 0
    """Which of the server's connections it was told on."""
    true_until: float = 0.0
    """On the monotonic clock, in seconds. A tool of an older one is looked at before it is called."""
    again_at: float = 0.0
    """From then on the server is asked anew for whoever begins to work."""


class McpServers:
    """A `ToolServers`. Connections belong to the event loop that first used them; close it there."""

    def __init__(self, servers: Sequence[McpServerConfig], fresh_s: float = LISTING_CACHE_S) -> None:
        self._fresh_s = fresh_s
        self._sessions = {server.name: McpServerSession(server) for server in servers}
        self._listings: dict[str, _Listing] = {}
        self._listing = {server.name: asyncio.Lock() for server in servers}
        """Apart: a server that is slow keeps those waiting alone whose task uses it."""

    async def list_tools(self, taken: Collection[str] = (), servers: Sequence[str] | None = None) -> UntrustedTools:
        """See `ToolServers`. Servers are asked side by side; those that are not wanted are not started."""
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
            raise ToolServerFailed(f"the tool server {spec.server} is not in the config file any more")
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
        """A server may change its tools while it runs, so a tool is looked at before it is called: of calls that follow
        each other at once the first.

        Raises ToolServerFailed.
        """
        server = session.server
        known = self._listings.get(server.name, _Listing())
        if known.told_on != session.opened or known.true_until < monotonic():
            known = self._listings[server.name] = await self._told(session, client, known)
        now = next((one for one in known.specs if one.tool == spec.tool), None)
        if now is None or not now.is_same_definition(spec):
            raise ToolServerFailed(
                f"the tool {spec.tool} of the tool server {server.name} is another one by now than was shown here"
            )

    async def aclose(self) -> None:
        """End the servers that were started here, and close all connections."""
        await asyncio.gather(*(session.aclose() for session in self._sessions.values()))

    async def _listed(self, session: McpServerSession) -> _Listing:
        name = session.server.name
        async with self._listing[name]:
            known = self._listings.get(name, _Listing())
            if known.told_on != session.opened or known.again_at < monotonic():
                known = self._listings[name] = await self._asked(session, known)
            return known

    async def _asked(self, session: McpServerSession, before: _Listing) -> _Listing:
        """Of one that does not answer now what it told before, if anything: its tools fail when they are called."""
        server = session.server
        try:
            async with session.call(server.timeout_s) as client:
                return await self._told(session, client, before)
        except ToolServerFailed as failure:
            reason = str(failure)
        except MCPError:
            reason = f"the tool server {server.name} does not tell its tools"
        missed = before.hidden if before.specs else (HiddenTool(server=server.name, tool="", reason=reason),)
        return replace(
            before, hidden=missed, told_on=session.opened, true_until=0.0, again_at=monotonic() + RETRY_LISTING_AFTER_S
        )

    async def _told(self, session: McpServerSession, client: Client, before: _Listing) -> _Listing:
        tools, told, is_cut = await _all_tools(client)
        until = monotonic() + self._fresh_s
        if before.specs and told and told == before.told:
            return replace(before, told_on=session.opened, true_until=until, again_at=until)
        specs, hidden = await asyncio.to_thread(filter_server_tools, session.server, tools, is_cut=is_cut)
        return _Listing(told, specs, hidden, session.opened, until, until)


_NOT_THERE = "the config file of the worker has no tool server of that name"


def _is_wanted(server: McpServerConfig, named: Collection[str]) -> bool:
    return server.name in named or (DEFAULT_SERVERS in named and not server.by_name)


async def _called(client: Client, tool: str, arguments: dict[str, JsonValue]) -> CallToolResult:
    """Without `Client.call_tool`: it checks a result by the server's own schema, whose patterns could run for ever."""
    request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
    return await client.session.send_request(request, CallToolResult)


class _Tools(NamedTuple):
    found: Sequence[Tool]
    told: str
    """See `_Listing`."""
    is_cut: bool
    """Whether the server had more to tell than is taken."""


async def _all_tools(client: Client) -> _Tools:
    """Page by page, until there are more than are taken, or they are too large together: some servers never end."""
    found: list[Tool] = []
    size, digest, is_known = 0, hashlib.sha256(), True
    page = await client.list_tools()
    while True:
        found.extend(page.tools)
        written = await asyncio.to_thread(_written, page.tools)
        # What cannot be written is counted as the longest message that may have brought it.
        size += MESSAGE_BYTES if written is None else len(written)
        is_known = is_known and written is not None
        digest.update(written or b"")
        ends = page.next_cursor is None or not page.tools or len(found) > MAX_TOOLS
        if ends or size > LISTING_CHARACTERS:
            return _Tools(found, digest.hexdigest() if is_known else "", is_cut=not ends)
        page = await client.list_tools(cursor=page.next_cursor)


def _written(tools: Sequence[Tool]) -> bytes | None:
    """As JSON, in ASCII; None where that is not possible, of numbers with thousands of digits for example."""
    try:
        return json.dumps(list(tools), default=dict).encode()
    except (TypeError, ValueError, RecursionError):
        return None
