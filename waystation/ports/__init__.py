"""What the core needs from outside, as protocols. Adapters and the doubles of `waystation.testing` implement them."""

from waystation.ports.hooks import CompactionHook
from waystation.ports.knowledge import Clock, DocumentSearch, Embedder, Memory, MemoryDraft, Redactor
from waystation.ports.meter import CallKind, Meter
from waystation.ports.model import ChatModel, ModelReply, ModelRequest, StopReason, ToolSpec
from waystation.ports.notices import Notifier
from waystation.ports.sealing import Cipher, Vault
from waystation.ports.store import DocumentStore, Forgetting, Outbox, TaskStore, TranscriptStore, WorkStore

__all__ = [
    "CallKind",
    "ChatModel",
    "Cipher",
    "Clock",
    "CompactionHook",
    "DocumentSearch",
    "DocumentStore",
    "Embedder",
    "Forgetting",
    "Memory",
    "MemoryDraft",
    "Meter",
    "ModelReply",
    "ModelRequest",
    "Notifier",
    "Outbox",
    "Redactor",
    "StopReason",
    "TaskStore",
    "ToolSpec",
    "TranscriptStore",
    "Vault",
    "WorkStore",
]
