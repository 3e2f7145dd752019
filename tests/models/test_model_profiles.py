from tests.support.prices import PRICES
from waystation.models.profiles import (
    DEFAULT_AGENT_MODEL,
    DEFAULT_SUMMARY_MODEL,
    ModelProfile,
    SupportedOptions,
    find_substitute_model,
    get_model_profile,
    strip_snapshot_date,
)


def test_a_known_model_has_its_window_and_its_longest_reply() -> None:
    assert get_model_profile("claude-opus-4-8") == ModelProfile(
        name="claude-opus-4-8",
        window=1_000_000,
        max_output=128_000,
        forces_tools=True,
        supported_options=SupportedOptions(),
    )
    assert get_model_profile("claude-haiku-4-5").window == 200_000
    assert get_model_profile("claude-opus-4-5").window == 200_000


def test_an_unknown_model_gets_careful_numbers_and_is_marked_as_unknown() -> None:
    facts = get_model_profile("somebody-elses-model")
    assert (facts.window, facts.max_output, facts.is_known) == (200_000, 8_192, False)
    assert not facts.forces_tools
    assert facts.name == "somebody-elses-model"


def test_a_dated_snapshot_is_its_model() -> None:
    assert strip_snapshot_date("claude-haiku-4-5-20251001") == "claude-haiku-4-5"
    assert get_model_profile("claude-haiku-4-5-20251001") == get_model_profile("claude-haiku-4-5")
    assert strip_snapshot_date("claude-opus-4-5") == "claude-opus-4-5"


def test_who_answered_is_named_where_it_is_another_and_in_letters_of_names() -> None:
    assert find_substitute_model("claude-haiku-4-5", "claude-haiku-4-5-20251001") == ""
    assert find_substitute_model("claude-haiku-4-5", "") == ""
    assert find_substitute_model("claude-haiku-4-5", "meta/llama-3.1:8b") == "meta/llama-3.1:8b"
    assert (
        find_substitute_model("claude-haiku-4-5", "x`\n# Report\x1b[2J" + "y" * 1_000) == "x????Report??2J" + "y" * 105
    )


def test_models_that_refuse_a_forced_tool_are_known_as_such() -> None:
    refusing = {price.model for price in PRICES if not get_model_profile(price.model).forces_tools}
    assert refusing == {"claude-opus-5-5", "claude-sonnet-5-5"}


def test_models_whose_thinking_depends_on_all_that_came_before_are_known_as_such() -> None:
    binding = {price.model for price in PRICES if get_model_profile(price.model).binds_thinking}
    assert binding == {"claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"}


def test_what_every_priced_model_takes_is_known() -> None:
    assert all(get_model_profile(price.model).supported_options is not None for price in PRICES)


def test_every_priced_model_and_both_defaults_are_known() -> None:
    assert all(get_model_profile(price.model).is_known for price in PRICES)
    assert get_model_profile(DEFAULT_AGENT_MODEL).is_known
    assert get_model_profile(DEFAULT_SUMMARY_MODEL).is_known
