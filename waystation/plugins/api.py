"""What a plug-in imports of Waystation: the groups of entry points, what its factories are given, and what they make.

A plug-in is an entry point of one of these groups, in a package that is installed beside Waystation. It does nothing
until the setting `plugins` names it; docs/how-to/write-a-plugin.md shows one of each.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from waystation.agents.tools.plugin_tool import PluginTool, PluginToolBase
from waystation.agents.tools.tool import ToolCallRejectedError, ToolContext, ToolInput
from waystation.config.settings import Settings
from waystation.context.transcript import Block, Message, Text, ToolResult, ToolSpec, ToolUse
from waystation.kernel.errors import (
    BadInput,
    ContentFilterError,
    ModelRejected,
    ModelUnavailable,
    RedactionFailed,
    TextRedactionError,
)
from waystation.kernel.usage import Usage
from waystation.models.endpoints import ModelEndpoint, NamedEndpoint
from waystation.models.http_errors import DEFAULT_TIMEOUTS, ModelTimeouts
from waystation.models.ports import (
    CacheWarmingModel,
    ChatModel,
    ModelRequest,
    ModelResponse,
    ReplyDelta,
    ReplyObserver,
    StopReason,
    StreamingChatModel,
)
from waystation.privacy.policy import (
    RedactionLevel,
    RedactionPolicy,
    RedactionResult,
    Span,
    TextDestination,
    get_redaction_level,
    with_placeholders,
)
from waystation.privacy.ports import ConfiguredRedactor, Redactor
from waystation.security.placeholders import build_placeholder
from waystation.security.untrusted import SafeMarkup, wrap_untrusted

__all__ = [
    "BadInput",
    "Block",
    "CacheWarmingModel",
    "ChatModel",
    "ChatModelContext",
    "ChatModelFactory",
    "ConfiguredRedactor",
    "ContentFilterError",
    "Message",
    "ModelEndpoint",
    "ModelRejected",
    "ModelRequest",
    "ModelResponse",
    "ModelTimeouts",
    "ModelUnavailable",
    "NamedEndpoint",
    "PluginGroup",
    "PluginTool",
    "PluginToolBase",
    "RedactionFailed",
    "RedactionLevel",
    "RedactionPolicy",
    "RedactionResult",
    "Redactor",
    "RedactorContext",
    "RedactorFactory",
    "ReplyDelta",
    "ReplyObserver",
    "SafeMarkup",
    "Span",
    "StopReason",
    "StreamingChatModel",
    "Text",
    "TextDestination",
    "TextRedactionError",
    "ToolCallRejectedError",
    "ToolContext",
    "ToolFactory",
    "ToolInput",
    "ToolResult",
    "ToolSpec",
    "ToolUse",
    "Usage",
    "get_redaction_level",
    "with_placeholders",
    "wrap_untrusted",
]


class PluginGroup(StrEnum):
    """The groups of entry points. What an entry point names is a factory, called by the process that needs one."""

    TOOLS = "waystation.tools"
    """A `ToolFactory`, which a class of tools is itself: a tool of agents. It is called as its entry point is."""
    CHAT_MODELS = "waystation.chat_models"
    """A `ChatModelFactory`: models of endpoints whose `kind` is the name of the entry point."""
    REDACTORS = "waystation.redactors"
    """A `RedactorFactory`: a redactor, which is given what the ones before it left of a text."""

    @property
    def noun(self) -> str:
        """What a plug-in of the group is, for people."""
        return {
            PluginGroup.TOOLS: "a tool",
            PluginGroup.CHAT_MODELS: "a kind of model endpoint",
            PluginGroup.REDACTORS: "a redactor",
        }[self]


@dataclass(frozen=True)
class ChatModelContext:
    """What a factory of chat models makes one from."""

    endpoint: NamedEndpoint
    """Its table `[endpoints.NAME]`, with what it says of address, region, project and the like."""
    model_endpoint: ModelEndpoint
    """What is known of its models' capabilities."""
    key: str | None = field(default=None, repr=False)
    """What the variable has that the endpoint's `key_from` names."""
    timeouts: ModelTimeouts = DEFAULT_TIMEOUTS
    """How long it may be silent, in seconds."""


@dataclass(frozen=True)
class RedactorContext:
    """What a factory of redactors makes one from."""

    settings: Settings
    policy: RedactionPolicy
    """By which this redactor redacts; it beats that of the settings."""
    key: bytes = field(repr=False)
    """32 bytes, from which placeholders derive. It never leaves the process."""
    processes: int = 0
    """Child processes that may search texts. 0: a command that ends soon, which searches itself."""

    def make_placeholder(self, tenant: str, type_: str, value: str) -> str:
        """The placeholder of a value within a tenant, such as `<TICKET_7f3a2c91d04e>`. `type_`: capitals, joined by
        underscores.
        """
        return build_placeholder(self.key, tenant, type_, value)


ToolFactory = Callable[[], PluginToolBase]
ChatModelFactory = Callable[[ChatModelContext], ChatModel]
"""Raises BadInput where the endpoint lacks what it needs, such as a key."""
RedactorFactory = Callable[[RedactorContext], ConfiguredRedactor]
"""Raises BadInput for settings that it cannot use. It loads nothing that takes long: the first text does."""
