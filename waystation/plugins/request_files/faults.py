"""Finds everything in a request body that the Messages API rejects, each with its place. Repairs nothing."""

from collections.abc import Iterator, Sequence

from waystation.context.message_rules import find_violations
from waystation.context.transcript import Block, Message, MessageRole, OpaqueBlock
from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.plugins.request_files.json_text import JsonNode, join_json_path
from waystation.plugins.request_files.request_body import (
    MESSAGES,
    parse_message_index,
    parse_root_node,
    read_block,
    read_message,
    read_system,
)

MAX_CACHE_MARKS = 4
RESULT_PARTS = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
_CALL_ID = compile_bounded(r"[a-zA-Z0-9_-]+")
_TOOL_NAME = compile_bounded(r"[a-zA-Z0-9_-]{1,128}")


class _Fault(Value):
    """A violated rule."""

    path: str
    rule: str

    @property
    def index(self) -> int | None:
        """Index of the message; None if it concerns none."""
        return parse_message_index(self.path.partition("]")[0] + "]")


def find_request_faults(raw: bytes) -> tuple[_Fault, ...]:
    """Return all faults, in the order of the messages. Raises BadInput if there is no request body at all."""
    root = parse_root_node(raw)
    found = [*_of_head(root), *_of_tools(root)]
    nodes = root.require(MESSAGES).as_items
    if not nodes:
        found.append(_Fault(path=MESSAGES, rule="must not be empty"))
    messages = [_message(node, found) for node in nodes]
    # Has no place, and concerns calls only: duplicate ids are found below, with their places.
    found += (_fault(line) for line in find_violations(messages) if ": " in line)
    found += _of_calls(nodes)
    found += _of_parts(nodes)
    found += _of_marks(root, nodes)
    return tuple(sorted(dict.fromkeys(found), key=lambda fault: -1 if fault.index is None else fault.index))


def _message(node: JsonNode, found: list[_Fault]) -> Message:
    """Read the message as far as possible; record what cannot be read, and put a substitute in its place."""
    try:
        return read_message(node).message
    except BadInput as error:
        fault = _fault(str(error))
    role: MessageRole = (
        "assistant" if isinstance(node.value, dict) and node.value.get("role") == "assistant" else "user"
    )
    unread = OpaqueBlock(kind="unreadable" if role == "assistant" else "document", tokens=0, body={})
    if not fault.path.startswith(f"{node.path}.content["):
        found.append(fault)
        return Message(id=node.path, role=role, blocks=(unread,))
    blocks: list[Block] = []
    for block in _listed(node, "content"):
        try:
            blocks.append(read_block(block))
        except BadInput as error:
            found.append(_fault(str(error)))
            blocks.append(unread)
    return Message(id=node.path, role=role, blocks=tuple(blocks))


def _typed(nodes: Sequence[JsonNode], kind: str) -> Iterator[JsonNode]:
    """Yield the blocks of this type in these messages."""
    for block in (block for node in nodes for block in _listed(node, "content")):
        if isinstance(block.value, dict) and block.value.get("type") == kind:
            yield block


def _of_calls(nodes: Sequence[JsonNode]) -> Iterator[_Fault]:
    """Check ids and names of calls."""
    seen: set[str] = set()
    for call in _typed(nodes, "tool_use"):
        name, call_id = call.as_object.get("name"), call.as_object.get("id")
        if isinstance(name, str) and name and not _TOOL_NAME.fullmatch(name):
            yield _Fault(path=f"{call.path}.name", rule="must be 1 to 128 letters, digits, hyphens or underscores")
        if isinstance(call_id, str) and call_id:
            if not _CALL_ID.fullmatch(call_id):
                yield _Fault(path=f"{call.path}.id", rule="must be letters, digits, hyphens or underscores")
            if call_id in seen:
                yield _Fault(path=f"{call.path}.id", rule="is also the id of an earlier call")
            seen.add(call_id)


def _of_parts(nodes: Sequence[JsonNode]) -> Iterator[_Fault]:
    """Check the parts of results."""
    for part in (part for result in _typed(nodes, "tool_result") for part in _listed(result, "content")):
        kind = part.value.get("type") if isinstance(part.value, dict) else None
        if isinstance(kind, str) and kind not in RESULT_PARTS:
            yield _Fault(path=f"{part.path}.type", rule="is not a block type that a tool_result can contain")


def _of_tools(root: JsonNode) -> Iterator[_Fault]:
    names: set[str] = set()
    try:
        tools = root.find("tools")
        for tool in tools.as_items if tools else []:
            name = tool.find("name")
            if name is not None and name.as_text in names:
                yield _Fault(path=name.path, rule="is also the name of an earlier tool")
            names.add(name.as_text if name else "")
    except BadInput as error:
        yield _fault(str(error))


def _of_head(root: JsonNode) -> Iterator[_Fault]:
    """Check model and system prompt."""
    model = root.find("model")
    if model is not None and not (isinstance(model.value, str) and model.value):
        yield _Fault(path=model.path, rule="must be a non-empty string")
    try:
        read_system(root)
    except BadInput as error:
        yield _fault(str(error))


def _of_marks(root: JsonNode, nodes: Sequence[JsonNode]) -> Iterator[_Fault]:
    """Check the number of cache marks."""
    blocks = [block for node in nodes for block in _listed(node, "content")]
    places = [*_listed(root, "system"), *_listed(root, "tools"), *blocks]
    places += [part for block in blocks for part in _listed(block, "content")]
    count = sum(isinstance(node.value, dict) and node.value.get("cache_control") is not None for node in places)
    if count > MAX_CACHE_MARKS:
        yield _Fault(
            path="the request", rule=f"has {count} blocks with cache_control; the maximum is {MAX_CACHE_MARKS}"
        )


def _listed(node: JsonNode, key: str) -> list[JsonNode]:
    """Return the items of an object's array, if it is one."""
    items = node.value.get(key) if isinstance(node.value, dict) else None
    return JsonNode(items, join_json_path(node.path, key)).as_items if isinstance(items, list) else []


def _fault(line: str) -> _Fault:
    """Build a fault from a line that begins with the place."""
    path, _, rule = line.partition(": ")
    return _Fault(path=path, rule=rule)
