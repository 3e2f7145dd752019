"""What the core needs from outside, as protocols. Adapters and the doubles of `waystation.testing` implement them."""

from waystation.ports.hooks import CompactionHook
from waystation.ports.knowledge import (
    Clock,
    DocumentCutter,
    DocumentSearch,
    Embedder,
    Memory,
    MemoryDraft,
    MemorySearch,
    PassagePoints,
    Placeholders,
    Redactor,
)
from waystation.ports.meter import CallKind, Meter
from waystation.ports.model import ChatModel, ModelReply, ModelRequest, StopReason, ToolSpec
from waystation.ports.notices import Notifier
from waystation.ports.removal import Forgetting, Outside, Persons
from waystation.ports.sealing import Cipher, Vault
from waystation.ports.store import (
    DocumentOutbox,
    DocumentStore,
    Outbox,
    ResultOutbox,
    ShownTexts,
    SlowTexts,
    TaskStore,
    TranscriptStore,
)
from waystation.ports.tables import TableEngine
from waystation.ports.tool_servers import ToolServers
from waystation.ports.web import PageReader, WebPages, WebSearch
from waystation.ports.work import WorkStore

__all__ = [
    "CallKind",
    "ChatModel",
    "Cipher",
    "Clock",
    "CompactionHook",
    "DocumentCutter",
    "DocumentOutbox",
    "DocumentSearch",
    "DocumentStore",
    "Embedder",
    "Forgetting",
    "Memory",
    "MemoryDraft",
    "MemorySearch",
    "Meter",
    "ModelReply",
    "ModelRequest",
    "Notifier",
    "Outbox",
    "Outside",
    "PageReader",
    "PassagePoints",
    "Persons",
    "Placeholders",
    "Redactor",
    "ResultOutbox",
    "ShownTexts",
    "SlowTexts",
    "StopReason",
    "TableEngine",
    "TaskStore",
    "ToolServers",
    "ToolSpec",
    "TranscriptStore",
    "Vault",
    "WebPages",
    "WebSearch",
    "WorkStore",
]
