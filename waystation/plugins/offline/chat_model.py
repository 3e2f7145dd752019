"""The offline model as a `ChatModel`: behind the same adapter as the provider's."""

import httpx2

from waystation.kernel.imports import pause_gc_for_imports
from waystation.models.ports import ChatModel
from waystation.plugins.api import ChatModelContext
from waystation.plugins.offline.transport import create_offline_transport


def create_offline_model() -> ChatModel:
    """The built-in model."""
    with pause_gc_for_imports():
        from waystation.models.anthropic.model import create_anthropic_model  # noqa: PLC0415  it loads the SDK

    return create_anthropic_model(
        "offline", "http://offline.invalid", httpx2.AsyncClient(transport=create_offline_transport())
    )


def create_chat_model(context: ChatModelContext) -> ChatModel:  # noqa: ARG001 - it has nothing to be told
    """The factory of the plug-in `offline`."""
    return create_offline_model()
