"""What is known about models by name: how much they take and give, and whether they can be made to call a tool."""

from waystation.domain.thinking import TO_HIGH, Takes
from waystation.domain.value import Value
from waystation.patterns import proven

OFFLINE_MODEL = "waystation-offline-1"
"""The built-in model: extractive, no LLM."""
AGENT_MODEL = "claude-sonnet-5-5"
"""What agents work with unless told otherwise."""
CONDENSE_MODEL = "claude-haiku-5-5"
"""What writes summaries unless told otherwise."""

UNKNOWN_WINDOW = 200_000
UNKNOWN_MAX_OUTPUT = 8_192
"""Small enough for every model behind the Messages protocol that is in use."""

_SNAPSHOT = proven(r"-\d{8}$")


class ModelFacts(Value):
    """What one model can do."""

    name: str
    window: int
    """Tokens of request and reply together."""
    max_output: int
    """Tokens of the longest reply, thinking included."""
    forces_tools: bool
    """Whether `tool_choice` may name a tool. Some newer models refuse such a request; they are asked in words."""
    binds_thinking: bool = False
    """Whether its thinking is signed over everything before it, so that it does not survive a change of that."""
    takes: Takes | None = None
    """Which effort and thinking may be asked of it; None where nobody knows."""
    known: bool = True
    """False: the numbers are careful guesses, and whoever relies on them must say so."""


_ALWAYS_THINKS = Takes(thinking=("adaptive",))
"""Sonnet could be asked to think only between its calls of tools. But then its provider cannot be asked to drop
outdated thinking (`binds_thinking`), and refuses the request after the next compaction."""
_THINKS = Takes(quiet_efforts=TO_HIGH)
_THINKS_IF_ASKED = Takes()
_THINKS_BOTH_WAYS = Takes(efforts=(*TO_HIGH, "max"), thinking=("adaptive", "off", "a number of tokens"))
_COUNTS_EFFORT = Takes(efforts=TO_HIGH, thinking=("off", "a number of tokens"))
_COUNTS = Takes(efforts=(), thinking=("off", "a number of tokens"))


def _current(name: str, takes: Takes, *, forces_tools: bool) -> ModelFacts:
    """Of a generation whose thinking is bound to what came before it."""
    return _large(name, takes).model_copy(update={"forces_tools": forces_tools, "binds_thinking": True})


def _large(name: str, takes: Takes) -> ModelFacts:
    return ModelFacts(name=name, window=1_000_000, max_output=128_000, forces_tools=True, takes=takes)


def _small(name: str, takes: Takes) -> ModelFacts:
    return ModelFacts(name=name, window=200_000, max_output=64_000, forces_tools=True, takes=takes)


_TABLE = (
    _current("claude-opus-5-5", _ALWAYS_THINKS, forces_tools=False),
    _current("claude-sonnet-5-5", _ALWAYS_THINKS, forces_tools=False),
    _current("claude-haiku-5-5", _THINKS, forces_tools=True),
    _large("claude-opus-5", _THINKS),
    _large("claude-opus-4-8", _THINKS_IF_ASKED),
    _large("claude-opus-4-7", _THINKS_IF_ASKED),
    _large("claude-opus-4-6", _THINKS_BOTH_WAYS),
    _small("claude-opus-4-5", _COUNTS_EFFORT),
    _small("claude-haiku-4-5", _COUNTS),
    ModelFacts(name="waystation-offline", window=200_000, max_output=UNKNOWN_MAX_OUTPUT, forces_tools=True),
)
"""As the provider's pages on models, thinking and effort have it in October 2026."""
_FACTS = {facts.name: facts for facts in _TABLE}


def plain_name(model: str) -> str:
    """The model's name without the date of a snapshot: `claude-haiku-4-5-20251001` is `claude-haiku-4-5`."""
    return _SNAPSHOT.sub("", model)


def model_facts(model: str) -> ModelFacts:
    """The facts of a model; of one that is not in the table, careful guesses with `known` False."""
    known = _FACTS.get(plain_name(model))
    if known is not None:
        return known
    return ModelFacts(name=model, window=UNKNOWN_WINDOW, max_output=UNKNOWN_MAX_OUTPUT, forces_tools=False, known=False)
