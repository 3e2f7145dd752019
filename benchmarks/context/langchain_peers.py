"""LangChain's `trim_messages` and its summarisation middleware on our conversations; empty if it is not installed."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from waystation.context.policy import CompactionPolicy
from waystation.context.transcript import Message

KEPT_MESSAGES = 20
Peer = Callable[[], Callable[[], object]]
"""Makes its input anew, and what is to be timed of it."""


def build_peers(messages: Sequence[Message], policy: CompactionPolicy) -> Mapping[str, Peer]:
    """By name, under sizes like those of the policy."""
    try:
        core = importlib.import_module("langchain_core.messages")
        fake = importlib.import_module("langchain_core.language_models.fake_chat_models")
        middleware = importlib.import_module("langchain.agents.middleware.summarization")
    except ImportError:
        return {}
    model = fake.FakeListChatModel(responses=["The work went on as planned."])

    def trimming() -> Callable[[], object]:
        said = convert_messages(core, messages)
        return lambda: core.trim_messages(
            said,
            max_tokens=policy.target,
            token_counter="approximate",
            strategy="last",
            start_on=["human", "ai"],
            include_system=True,
        )

    def summarising(**options: object) -> Peer:
        summaries = middleware.SummarizationMiddleware(
            model=model, trigger=("messages", KEPT_MESSAGES), keep=("messages", KEPT_MESSAGES), **options
        )

        def made() -> Callable[[], object]:
            state = {"messages": convert_messages(core, messages)}
            return lambda: summaries.before_model(state, None)

        return made

    return {
        "LangChain: `trim_messages`": trimming,
        "LangChain: summarisation middleware, model stubbed; it shows the model 4,000 tokens": summarising(),
        "LangChain: the same, showing it everything": summarising(trim_tokens_to_summarize=None),
    }


def convert_messages(core: ModuleType, messages: Sequence[Message]) -> list[object]:
    """The messages as LangChain has them: a message for each result."""
    said: list[object] = []
    for message in messages:
        said += (
            core.ToolMessage(content=result.content, tool_call_id=result.tool_use_id) for result in message.tool_results
        )
        if message.role == "assistant":
            calls = [{"name": call.name, "args": dict(call.input), "id": call.id} for call in message.tool_uses]
            said.append(core.AIMessage(content=message.text, tool_calls=calls))
        elif message.text:
            said.append(core.HumanMessage(content=message.text))
    return said
