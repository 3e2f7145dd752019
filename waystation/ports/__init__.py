"""What the core needs from outside, as protocols. Adapters and the doubles of `waystation.testing` implement them."""

from waystation.ports.hooks import CompactionHook
from waystation.ports.knowledge import Clock, DocumentSearch, Embedder, Memory, Redactor
from waystation.ports.meter import CallKind, Meter
from waystation.ports.model import ChatModel, ModelReply, ModelRequest, StopReason, ToolSpec
from waystation.ports.notices import Notifier
from waystation.ports.store import DocumentStore, Outbox, TaskStore, TranscriptStore, WorkStore

__all__ = [
    "CallKind",
    "ChatModel",
    "Clock",
    "CompactionHook",
    "DocumentSearch",
    "DocumentStore",
    "Embedder",
    "Memory",
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
    "WorkStore",
]
