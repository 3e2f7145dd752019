"""What is known about models by name: how much they take and give, and whether they can be made to call a tool."""

import re

from waystation.domain.value import Value

OFFLINE_MODEL = "waystation-offline-1"
"""The built-in model: extractive, no LLM."""
AGENT_MODEL = "claude-sonnet-5-5"
"""What agents work with unless told otherwise."""
CONDENSE_MODEL = "claude-haiku-5-5"
"""What writes summaries unless told otherwise."""

UNKNOWN_WINDOW = 200_000
UNKNOWN_MAX_OUTPUT = 8_192
"""Small enough for every model behind the Messages protocol that is in use."""

_SNAPSHOT = re.compile(r"-\d{8}$")


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
    known: bool = True
    """False: the numbers are careful guesses, and whoever relies on them must say so."""


_TABLE = (
    ModelFacts(name="claude-opus-5-5", window=1_000_000, max_output=128_000, forces_tools=False, binds_thinking=True),
    ModelFacts(name="claude-sonnet-5-5", window=1_000_000, max_output=128_000, forces_tools=False, binds_thinking=True),
    ModelFacts(name="claude-haiku-5-5", window=1_000_000, max_output=128_000, forces_tools=True, binds_thinking=True),
    ModelFacts(name="claude-opus-5", window=1_000_000, max_output=128_000, forces_tools=True),
    ModelFacts(name="claude-opus-4-8", window=1_000_000, max_output=128_000, forces_tools=True),
    ModelFacts(name="claude-opus-4-7", window=1_000_000, max_output=128_000, forces_tools=True),
    ModelFacts(name="claude-opus-4-6", window=1_000_000, max_output=128_000, forces_tools=True),
    ModelFacts(name="claude-opus-4-5", window=200_000, max_output=64_000, forces_tools=True),
    ModelFacts(name="claude-haiku-4-5", window=200_000, max_output=64_000, forces_tools=True),
    ModelFacts(name="waystation-offline", window=200_000, max_output=UNKNOWN_MAX_OUTPUT, forces_tools=True),
)
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
