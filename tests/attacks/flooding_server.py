"""A tool server that sends without end what nobody asked for: `python flooding_server.py KIND [COUNT]`.

It reads what it is sent, so that only its client can bound it. Over HTTP the same messages are events.
"""

import json
import sys
import threading
from collections.abc import Iterator
from itertools import count

LARGE = "x" * 1_000_000
KINDS: dict[str, dict[str, object]] = {
    "ping": {"id": "{}", "method": "ping"},
    "sampling": {
        "id": "{}",
        "method": "sampling/createMessage",
        "params": {"maxTokens": 1, "messages": [{"role": "user", "content": {"type": "text", "text": "x" * 1_000}}]},
    },
    "elicitation": {
        "id": "{}",
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
    },
    "roots": {"id": "{}", "method": "roots/list"},
    "logging": {"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}},
    "progress": {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}},
    "cancelled": {"method": "notifications/cancelled", "params": {"requestId": 1}},
    "changed": {"method": "notifications/tools/list_changed"},
    "answers": {"id": "{}", "result": {}},
    "errors": {"id": "{}", "error": {"code": 1, "message": "no"}},
    "large": {"method": "notifications/message", "params": {"level": "info", "data": LARGE}},
    "nonsense": {"jsonrpc": "1.0"},
}
LIST = f"[{','.join(['{}'] * 300_000)}]"
JUNK = {"blank": "", "list": LIST, "object": f'{{"a":{LIST}}}', "words": LARGE}
"""Lines that are no message."""
TOOL = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


def iter_unsolicited_messages(kind: str, many: int | None) -> Iterator[str]:
    """So many messages of the kind; without end where none are said."""
    for number in count() if many is None else range(many):
        if kind in JUNK:
            yield JUNK[kind]
        else:
            yield json.dumps({"jsonrpc": "2.0"} | KINDS[kind]).replace('"{}"', f'"of the server {number}"')


def make_answer(message: dict[str, object]) -> str | None:
    """What a well-behaved server says; None where nothing is asked."""
    if "id" not in message or "method" not in message:
        return None
    results: dict[str, object] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "flooding", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
    }
    reply: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] not in results:
        return json.dumps(reply | {"error": {"code": -32601, "message": "unknown"}})
    return json.dumps(reply | {"result": results[str(message["method"])]})


def make_tool_page(message: dict[str, object], number: int) -> str:
    """One of a list of tools that never ends: each has one tool with a schema of 3,000 characters."""
    schema = {"type": "object", "properties": {"a": {"enum": ["x" * 3_000]}}}
    result = {"tools": [{"name": f"tool_{number}", "inputSchema": schema}], "nextCursor": str(number)}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


def main(kind: str, many: int | None) -> None:
    lock = threading.Lock()

    def say(line: str) -> None:
        with lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def flood() -> None:
        for line in iter_unsolicited_messages(kind, many):
            say(line)

    pages = count()
    for line in sys.stdin:
        message = json.loads(line)
        if kind == "pages" and message.get("method") == "tools/list":
            say(make_tool_page(message, next(pages)))
            continue
        if message.get("method") == "tools/call":
            flooding = threading.Thread(target=flood, daemon=True)
            flooding.start()
            if many is None:
                continue  # never answered: only the bound ends the call
            flooding.join()
        if (said := make_answer(message)) is not None:
            say(said)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
