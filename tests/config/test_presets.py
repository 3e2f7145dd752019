from itertools import compress, product

import pytest

from waystation.budgets.budget import BudgetMode
from waystation.config.presets import PRESETS, ConfigLayer, ConfigSource, ResolvedConfig, merge_config_sources
from waystation.kernel.amount import Limit
from waystation.tasks.task import Preset

LEVELS = ("request", "preset", "environment", "config file")
WISHES: dict[str, tuple[Limit | int | BudgetMode, ...]] = {
    "budget": tuple(Limit(tokens=tokens) for tokens in (10_000, 20_000, 30_000, 40_000)),
    "agent_budget": tuple(Limit(micro_usd=micro_usd) for micro_usd in (1_000, 2_000, 3_000, 4_000)),
    "window": (12_000, 13_000, 14_000, 15_000),
    "mode": (BudgetMode.HARD, BudgetMode.SOFT, BudgetMode.HARD, BudgetMode.SOFT),
}
"""What each level would have of each field."""


def test_the_first_level_that_says_something_is_heard() -> None:
    Heard = tuple[object, str | None]
    chosen, expected = dict[tuple[str, ...], Heard](), dict[tuple[str, ...], Heard]()
    for field, speaks in product(WISHES, product((True, False), repeat=len(LEVELS))):
        sources = [
            ConfigSource(level, ConfigLayer.model_validate({field: wish} if said else {}))
            for level, wish, said in zip(LEVELS, WISHES[field], speaks, strict=True)
        ]
        speaking = (field, *compress(LEVELS, speaks))
        found = merge_config_sources(sources)
        chosen[speaking] = (getattr(found, field), found.origins.get(field))
        spoken = [*compress(zip(WISHES[field], LEVELS, strict=True), speaks)]
        expected[speaking] = spoken[0] if spoken else (getattr(ResolvedConfig(), field), None)
    assert chosen == expected


def test_levels_that_speak_of_different_things_are_all_heard() -> None:
    chosen = merge_config_sources(
        [
            ConfigSource("a", ConfigLayer(window=12_000)),
            ConfigSource("b", ConfigLayer(window=13_000, mode=BudgetMode.SOFT)),
        ]
    )
    assert (chosen.window, chosen.mode, chosen.origins) == (12_000, BudgetMode.SOFT, {"window": "a", "mode": "b"})


def test_where_nobody_speaks_the_defaults_hold() -> None:
    chosen = merge_config_sources([])
    assert (chosen.budget, chosen.agent_budget) == (Limit(tokens=600_000), Limit(tokens=100_000))
    assert (chosen.mode, chosen.window, chosen.origins) == (BudgetMode.APPROVAL, None, {})


@pytest.mark.parametrize(
    ("preset", "numbers"),
    [
        (Preset.QA, (30, 25_000, 2, 10, 75, None)),
        (Preset.DEBUGGING, (100, 75_000, 5, 30, 85, None)),
        (Preset.LONG, (75, None, 3, 20, 75, 1_000)),
    ],
)
def test_a_preset_is_these_numbers(preset: Preset, numbers: tuple[int | None, ...]) -> None:
    got = merge_config_sources([ConfigSource("preset", PRESETS[preset])])
    assert (got.messages, got.window, got.primers, got.recents, got.trigger_percent, got.history) == numbers


@pytest.mark.parametrize("preset", [preset for preset in Preset if PRESETS[preset].messages is not None])
def test_after_a_compaction_a_preset_has_room_for_turns(preset: Preset) -> None:
    got = merge_config_sources([ConfigSource("preset", PRESETS[preset])])
    assert got.messages is not None
    assert got.primers + got.recents <= got.messages // 2
