"""A Messages server whose agents first make the calls that a test has written down, and then work as the offline model
does."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import httpx2
from pydantic import JsonValue

from tests.end_to_end.messages_server import MessagesServer
from waystation.models.anthropic.sse import iter_message_events
from waystation.plugins.offline.responses import OfflineToolCall


@dataclass
class ScriptedMessagesServer(MessagesServer):
    """Which reply is asked for is read from the request: a turn that is asked for again is answered in the same way."""

    scripts: Mapping[str, Sequence[Sequence[OfflineToolCall]]] = field(
        default_factory=dict[str, Sequence[Sequence[OfflineToolCall]]]
    )
    """By step: the calls of its first turns."""

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        """The script's calls in place of the offline model's reply, for what that one would have cost."""
        calls = () if path.endswith("count_tokens") else self._scripted(body)
        if not calls:
            return super().reply(path, headers, body)
        asked = cast("dict[str, JsonValue]", json.loads(body))
        whole = super().reply(path, headers, json.dumps({**asked, "stream": False}).encode())
        message = cast("dict[str, JsonValue]", whole.json())
        mark = hashlib.sha256(body).hexdigest()[:20]
        blocks: list[JsonValue] = [
            {"type": "tool_use", "id": f"toolu_{mark}{index}", "name": call.name, "input": call.input}
            for index, call in enumerate(calls)
        ]
        scripted: dict[str, JsonValue] = {**message, "content": blocks, "stop_reason": "tool_use"}
        if not asked.get("stream"):
            return httpx2.Response(200, json=scripted)
        stream = b"".join(iter_message_events(scripted))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    def _scripted(self, body: bytes) -> Sequence[OfflineToolCall]:
        step, turn = self.find_turn(body) or ("", 0)
        script = self.scripts.get(step, ())
        return script[turn - 1] if 0 < turn <= len(script) else ()
