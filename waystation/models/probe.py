"""Probes what an endpoint can do for a model by a few tiny calls, before any task relies on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from waystation.context.transcript import Message, RedactedThinking, Thinking, ToolResult, ToolUse, build_user_message
from waystation.kernel.errors import (
    BrokenEndpointError,
    ContentFilterError,
    InvalidReplyError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    SpendingLimitReached,
)
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.models.endpoints import ModelCapabilities
from waystation.models.ports import ChatModel, ModelRequest, ModelResponse, StopReason, ToolSpec
from waystation.models.profiles import find_substitute_model

ProbeVerdict = Literal["fits", "worked around", "will not work", "not asked"]

REPLY_TOKENS = 256
"""Maximum tokens of each reply."""
PROBE_CALLS = 9
"""Calls at an endpoint that accepts the first form of request, including counting; each rejected form is one more."""
PROMPT_TOKENS_A_CALL = 600
_CACHED_WORDS = 4_500
"""Words of a prompt that is long enough for every provider's cache."""
PROBE_TOKENS = PROBE_CALLS * (PROMPT_TOKENS_A_CALL + REPLY_TOKENS) + 4 * _CACHED_WORDS
"""Estimated tokens of these calls, if the model respects its maximum output; without the overflow test."""

HARBOUR_DEPTH = ToolSpec(
    name="harbour_depth",
    description="Returns the depth of one harbour. Call it once for each harbour.",
    input_schema={"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]},
)
_SYSTEM = "Look up depths with the tool. Do not guess them."
_ONE, _TWO = "How deep is the harbour of Nordvik?", "How deep are the harbours of Nordvik and of Osthamn? Ask for both."
OVERFLOW_WORDS = "longer than the model's window"
"""Words of our own error for it."""


class ProbeLine(Value):
    """Result of one test."""

    name: str
    fit: ProbeVerdict
    finding: str


class ProbeResult(Value):
    """Capabilities that were found for one endpoint and model."""

    endpoint: str
    model: str
    lines: tuple[ProbeLine, ...]
    capabilities: ModelCapabilities

    @property
    def can_run_tasks(self) -> bool:
        """Whether a task can run there, as observed."""
        return self.is_conclusive and not self.capabilities.unfit_reason

    @property
    def is_conclusive(self) -> bool:
        """Whether the tests that decide this were answered."""
        return self.capabilities.streams is False or self.capabilities.tools is not None


@dataclass
class ProbeRunner:
    """Makes the calls and collects what they show."""

    models: dict[tuple[bool, bool], ChatModel]
    """The same endpoint, by whether cache marks and bound thinking are sent."""
    model: str
    lines: list[ProbeLine] = field(default_factory=list[ProbeLine])
    found: dict[str, bool | str] = field(default_factory=dict[str, bool | str])

    async def run(self, overflow: int = 0) -> tuple[tuple[ProbeLine, ...], ModelCapabilities]:
        """Run all tests, including a request of `overflow` tokens if that is not 0.

        Raises:
            ModelError: the endpoint answers nothing at all: a wrong key, a missing model, no credit, an outage. A later
                failure says nothing about its capabilities: what it leaves open counts as not tested.
        """
        chat, reply = await self._first()
        if chat is None or reply is None:
            return tuple(self.lines), self._capabilities()
        self._who(reply)
        self._usage(reply)
        called = await self._tools(chat)
        if called:
            await self._forced(chat)
            await self._parallel(chat)
        await self._cache(chat)
        await self._count(chat)
        await self._overflow(chat, overflow)
        return tuple(self.lines), self._capabilities()

    async def _ask(self, chat: ChatModel, request: ModelRequest) -> ModelResponse:
        return await chat.complete(self._named(request))

    def _named(self, request: ModelRequest) -> ModelRequest:
        return request.replace(model=self.model)

    def _capabilities(self) -> ModelCapabilities:
        return ModelCapabilities.model_validate(self.found)

    def _note(self, name: str, fit: ProbeVerdict, finding: str) -> None:
        self.lines.append(ProbeLine(name=name, fit=fit, finding=finding))

    async def _first(self) -> tuple[ChatModel | None, ModelResponse | None]:
        """Return the first form of request that is not rejected, and its reply."""
        refused: list[ModelRejected] = []
        for caches, binds in product((True, False), repeat=2):
            chat = self.models[caches, binds]
            try:
                reply = await self._ask(chat, _asking("Say: ready."))
            except (SpendingLimitReached, ContentFilterError):
                raise
            except (InvalidReplyError, BrokenEndpointError) as error:
                self.found["streams"] = False
                self._note("streaming", "will not work", str(error))
                return None, None
            except ModelRejected as error:
                refused.append(error)
                continue
            self.found |= {"streams": True, **_left_out(caches=caches, binds=binds)}
            self._note("streaming", "fits", f"a complete stream with the stop reason {reply.stop}")
            if not caches:
                self._note(
                    "cache marks",
                    "worked around",
                    "the endpoint refuses cache marks (`cache_control`), so nothing is cached",
                )
            if not binds:
                self._note(
                    "thinking",
                    "worked around",
                    "the endpoint refuses the beta feature that drops outdated thinking, so requests do not use it",
                )
            return chat, reply
        raise refused[0]

    def _who(self, reply: ModelResponse) -> None:
        other = find_substitute_model(self.model, reply.model)
        self.found["answers_as"] = other
        finding = f"{other} answers; calls are charged at the price of the requested model" if other else "as requested"
        self._note("model", "worked around" if other else "fits", finding)

    def _usage(self, reply: ModelResponse) -> None:
        reports = bool(reply.usage.prompt_tokens and reply.usage.output)
        self.found["reports_usage"] = reports
        finding = (
            "tokens of request and reply"
            if reports
            else "not reported; an upper bound is charged, and marked as estimated"
        )
        self._note("usage", "fits" if reports else "worked around", finding)

    async def _tools(self, chat: ChatModel) -> bool:
        """Test a tool call, and then the reply to its result."""
        try:
            asked = _asking(_ONE, tools=(HARBOUR_DEPTH,))
            reply = await self._ask(chat, asked)
            calls = _calls(reply)
            if not calls:
                return self._toolless(_instead_of_a_call(reply))
            answered = await self._ask(chat, _answered(asked, reply))
        except ModelError as error:
            if _passes(error):
                self._note("tools", "not asked", str(error))
                return False
            return self._toolless(str(error))
        self.found["tools"] = True
        stop = "" if reply.stop is StopReason.TOOL_USE else f"; the stop reason of the call is {reply.stop}"
        finding = f"a call, its result, and a reply with the stop reason {answered.stop}{stop}"
        self._note("tools", "fits", finding)
        return True

    def _toolless(self, cause: str) -> bool:
        self.found["tools"] = False
        self._note("tools", "will not work", cause)
        return False

    async def _forced(self, chat: ChatModel) -> None:
        try:
            reply = await self._ask(
                chat, _asking("Say: ready.", tools=(HARBOUR_DEPTH,), require_tool=HARBOUR_DEPTH.name)
            )
            cause = (
                "" if _calls(reply) else "the endpoint accepts a forced choice, but the reply does not call the tool"
            )
        except ModelError as error:
            if _passes(error):
                self._note("forced choice", "not asked", str(error))
                return
            cause = str(error)
        self.found["forces_tools"] = not cause
        finding = (
            f"{cause}; Waystation asks for the tool in the prompt instead" if cause else "the chosen tool is called"
        )
        self._note("forced choice", "worked around" if cause else "fits", finding)

    async def _parallel(self, chat: ChatModel) -> None:
        try:
            calls = len(_calls(await self._ask(chat, _asking(_TWO, tools=(HARBOUR_DEPTH,)))))
        except ModelError as error:
            self._note("parallel calls", "not asked", str(error))
            return
        self.found["parallel_calls"] = calls > 1
        finding = f"{format_count(calls, 'call')} in one reply"
        self._note("parallel calls", "fits" if calls > 1 else "worked around", finding)

    async def _cache(self, chat: ChatModel) -> None:
        """Send the same long request twice: the second reads what the first wrote."""
        if self.found.get("caches") is False:
            return
        long = _asking("Say: ready.", system=" ".join(f"w{number % 10}" for number in range(_CACHED_WORDS)))
        try:
            seen = [(await self._ask(chat, long)).usage for _ in range(2)]
        except ModelError as error:
            if OVERFLOW_WORDS in str(error):
                self.found["names_overflow"] = True
            self._note("cache", "not asked", str(error))
            return
        read = any(usage.cache_read for usage in seen)
        if read:
            self.found["caches"] = True
        finding = (
            "the endpoint reads input from its cache, and reports it"
            if read
            else "no cached input is reported, so each prompt costs its full price"
        )
        self._note("cache", "fits" if read else "worked around", finding)

    async def _count(self, chat: ChatModel) -> None:
        try:
            counts = await chat.count_tokens(self._named(_asking(_ONE))) is not None
        except ModelError as error:
            self._note("count", "not asked", str(error))
            return
        self.found["counts"] = counts
        finding = "counts tokens" if counts else "not supported; reservations use the size of requests in bytes"
        self._note("count", "fits" if counts else "worked around", finding)

    async def _overflow(self, chat: ChatModel, tokens: int) -> None:
        if self.found.get("names_overflow"):
            self._note(
                "overflow",
                "fits",
                "the endpoint rejected the cache test's request as too long: its window is under "
                f"{4 * _CACHED_WORDS:,} tokens",
            )
            return
        if not tokens:
            self._note("overflow", "not asked", "add --overflow to send a request that is longer than the window")
            return
        try:
            await self._ask(chat, _asking(" ".join(["wave"] * tokens)))
        except ModelError as error:
            if _passes(error):
                self._note("overflow", "not asked", str(error))
                return
            named = OVERFLOW_WORDS in str(error)
            self.found["names_overflow"] = named
            self._note("overflow", "fits" if named else "worked around", str(error))
            return
        self.found["names_overflow"] = False
        self._note(
            "overflow",
            "worked around",
            "the endpoint answered a request that is longer than the window that Waystation assumes, so it truncates "
            "requests or has a larger window. Find out its window, and submit tasks with a smaller --window",
        )


def _passes(error: ModelError) -> bool:
    """Whether the error is temporary and says nothing about the endpoint, unlike an incomplete reply."""
    passing = isinstance(error, ModelUnavailable | SpendingLimitReached | ContentFilterError)
    return passing and not isinstance(error, InvalidReplyError)


def _left_out(*, caches: bool, binds: bool) -> Mapping[str, bool]:
    """Return what a request had to do without. That a feature was accepted at first does not prove that it was used."""
    return ({} if caches else {"caches": False}) | ({} if binds else {"binds_thinking": False})


def _asking(
    question: str, tools: Sequence[ToolSpec] = (), require_tool: str | None = None, system: str = _SYSTEM
) -> ModelRequest:
    return ModelRequest(
        model="",
        system=system,
        messages=(build_user_message("m1", question),),
        tools=tuple(tools),
        require_tool=require_tool,
        max_output=REPLY_TOKENS,
    )


def _calls(reply: ModelResponse) -> list[ToolUse]:
    return [block for block in reply.blocks if isinstance(block, ToolUse) and block.name == HARBOUR_DEPTH.name]


def _instead_of_a_call(reply: ModelResponse) -> str:
    if any(isinstance(block, ToolUse) for block in reply.blocks):
        return "a call of a tool that the request did not offer"
    if not reply.blocks:
        return "an empty reply"
    if all(isinstance(block, Thinking | RedactedThinking) for block in reply.blocks):
        return "only thinking, without a call of the tool"
    return "only text, without a call of the tool"


def _answered(request: ModelRequest, reply: ModelResponse) -> ModelRequest:
    calls = [block for block in reply.blocks if isinstance(block, ToolUse)]
    results = tuple(ToolResult(tool_use_id=call.id, content="4.1 m at low water") for call in calls)
    said = (Message(id="m2", role="assistant", blocks=reply.blocks), Message(id="m3", role="user", blocks=results))
    return request.replace(messages=(*request.messages, *said))
