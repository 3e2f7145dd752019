import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.agents.leg import AgentConfig
from waystation.models.profiles import (
    MIN_THINKING_TOKENS,
    Effort,
    ThinkingSetting,
    get_model_profile,
    get_thinking_tokens,
)


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "asked"),
    [
        ("claude-opus-5-5", "max", "adaptive", None),
        ("claude-opus-5-5", None, "off", "thinking off"),
        ("claude-opus-5-5", None, 4_000, "thinking 4000"),
        ("claude-sonnet-5-5", "xhigh", None, None),
        ("claude-sonnet-5-5", None, "off", "thinking off"),
        ("claude-haiku-5-5", "high", "off", None),
        ("claude-haiku-5-5", "xhigh", "off", "effort xhigh with thinking off"),
        ("claude-opus-5", "max", "off", "effort max with thinking off"),
        ("claude-opus-4-8", "max", "off", None),
        ("claude-opus-4-7", None, 4_000, "thinking 4000"),
        ("claude-opus-4-6", "max", 4_000, None),
        ("claude-opus-4-6", "xhigh", None, "effort xhigh"),
        ("claude-opus-4-5", "high", 4_000, None),
        ("claude-opus-4-5", "max", None, "effort max"),
        ("claude-haiku-4-5-20251001", "low", None, "effort low"),
        ("claude-haiku-4-5", None, "adaptive", "thinking adaptive"),
        ("claude-haiku-4-5", None, 4_000, None),
    ],
)
def test_what_a_model_is_known_to_refuse(
    model: str, effort: Effort | None, thinking: ThinkingSetting | None, asked: str | None
) -> None:
    takes = get_model_profile(model).supported_options
    assert takes is not None
    refused = takes.find_unsupported_option(effort, thinking)
    assert (refused.requested if refused else None) == asked


def test_nothing_is_known_of_what_an_unknown_model_takes() -> None:
    assert get_model_profile("somebody-elses-1").supported_options is None


def thinking_terms(tokens: int | None, window: int = 100_000) -> AgentConfig:
    aside = tokens or 0
    return AgentConfig(
        model="m",
        condense_model="c",
        window=window,
        trigger=window * 3 // 4,
        target=window * 3 // 8,
        thinking=tokens,
        max_output=aside + 8_000,
        min_reply_tokens=aside + 256,
    )


@given(st.integers(MIN_THINKING_TOKENS, 60_000), st.integers(0, 80_000), st.integers(0, 200_000))
def test_a_reply_always_has_room_beside_the_thinking_whatever_an_agent_is_left_with(
    thinking: int, most: int, budget: int
) -> None:
    narrowed = thinking_terms(thinking).with_thinking_limit(most).with_scaled_min_reply(budget)
    assert (
        MIN_THINKING_TOKENS <= get_thinking_tokens(narrowed.thinking) <= max(MIN_THINKING_TOKENS, min(thinking, most))
    )
    assert narrowed.min_reply_tokens == get_thinking_tokens(narrowed.thinking) + 256
    assert narrowed.min_reply_tokens <= narrowed.max_output <= get_thinking_tokens(narrowed.thinking) + 8_000


def test_terms_without_a_budget_for_thinking_have_nothing_to_shorten() -> None:
    plain = thinking_terms(None)
    assert plain.with_thinking_limit(0) == plain
