"""What holds for models of a kind."""

import pytest

from waystation.config.presets import (
    COMPACTION_PROFILES,
    CompactionProfile,
    ConfigLayer,
    build_profile_layer,
    find_compaction_profile,
)


@pytest.mark.parametrize(
    ("model", "name", "percent", "keep", "writer"),
    [
        ("claude-opus-5-5", "opus", 80, 5, "claude-opus-5-5"),
        ("claude-opus-4-5-20251101", "opus", 80, 5, "claude-opus-4-5-20251101"),
        ("claude-sonnet-5-5", "sonnet", 75, 3, "claude-haiku-5-5"),
        ("claude-haiku-4-5", "haiku", 60, 3, "claude-haiku-4-5"),
    ],
)
def test_the_profile_of_a_model_is_found_by_its_name(
    model: str, name: str, percent: int, keep: int, writer: str
) -> None:
    assert find_compaction_profile(model, {}) == (name, COMPACTION_PROFILES[name])
    wishes = build_profile_layer(COMPACTION_PROFILES[name], model, keeps_ends=True)
    assert wishes == ConfigLayer(trigger_percent=percent, keep_last=keep, condense_model=writer)


def test_a_model_of_another_kind_has_none() -> None:
    assert find_compaction_profile("waystation-offline-1", {}) is None


def test_how_many_messages_stay_is_said_of_ends_alone() -> None:
    assert build_profile_layer(COMPACTION_PROFILES["opus"], "claude-opus-5-5", keeps_ends=False).keep_last is None


def test_a_profile_of_ones_own_beats_the_built_in_one_field_by_field() -> None:
    own = {"sonnet": CompactionProfile(threshold=80)}
    assert find_compaction_profile("claude-sonnet-5-5", own) == (
        "sonnet",
        COMPACTION_PROFILES["sonnet"].replace(threshold=80),
    )
    assert find_compaction_profile("claude-opus-5-5", own) == ("opus", COMPACTION_PROFILES["opus"])


def test_of_several_names_the_longest_is_heard_first() -> None:
    own = {"claude": CompactionProfile(threshold=50, keep=9), "opus-4": CompactionProfile(keep=7)}
    found = find_compaction_profile("claude-opus-4-5", own)
    assert found is not None
    # By length: opus, claude and opus-4 (as long as each other, by the alphabet).
    assert found[0] == "opus-4"
    assert (found[1].threshold, found[1].keep, found[1].condense_model) == (50, 7, "itself")


def test_another_kind_of_model_can_be_given_a_profile() -> None:
    own = {"somebody": CompactionProfile(threshold=40, condense_model="small-1")}
    found = find_compaction_profile("somebody-elses-1", own)
    assert found is not None
    assert build_profile_layer(found[1], "somebody-elses-1", keeps_ends=True) == ConfigLayer(
        trigger_percent=40, condense_model="small-1"
    )


@pytest.mark.parametrize("threshold", [5, 6, 75, 100])
def test_a_threshold_from_5_to_100_is_one(threshold: int) -> None:
    profile = CompactionProfile(threshold=threshold)
    assert (profile.threshold_percent, profile.threshold_fault) == (threshold, None)


def test_a_threshold_of_minus_one_or_none_is_the_defaults() -> None:
    assert [
        (profile.threshold_percent, profile.threshold_fault)
        for profile in (CompactionProfile(threshold=-1), CompactionProfile())
    ] == [(None, None)] * 2


@pytest.mark.parametrize("threshold", [4, 101, 0, -2, 1_000_000, "80", "high", 82.5, True, [80], {}])
def test_anything_else_is_the_defaults_too_and_is_told(threshold: object) -> None:
    profile = CompactionProfile(threshold=threshold)
    assert profile.threshold_percent is None
    assert profile.threshold_fault == (
        f"threshold {threshold} is neither a whole number from 5 to 100 nor -1, so the default, 75, is used"
    )
