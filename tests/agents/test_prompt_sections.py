"""What the layers of a request get: never over the limit, in a fixed order, the same every time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.agents.prompt_sections import (
    SECTION_RULES,
    SECTION_SHARES,
    PromptCandidate,
    PromptDemands,
    PromptSection,
    allocate_prompt,
    compute_request_limit,
    compute_section_tokens,
)

windows = st.integers(0, 1_000_000)


@st.composite
def demands(draw: st.DrawFn) -> PromptDemands:
    """Parts of any size and kind in some of the layers."""
    asked: dict[PromptSection, list[PromptCandidate]] = {}
    for layer in draw(st.lists(st.sampled_from(PromptSection), unique=True)):
        count = draw(st.integers(0, 5))
        asked[layer] = [
            PromptCandidate(
                name=f"{layer}-{number}",
                tokens=draw(st.integers(0, 300_000)),
                required=draw(st.booleans()),
                divisible=draw(st.booleans()),
                relevance=draw(st.floats(0, 1)),
                repeatable=draw(st.booleans()),
            )
            for number in range(count)
        ]
    return asked


def full(layer: PromptSection, window: int) -> list[PromptCandidate]:
    return [PromptCandidate(name=str(layer), tokens=compute_section_tokens(layer, window), required=True)]


def test_the_shares_are_the_whole_and_every_layer_has_a_rule() -> None:
    assert sum(SECTION_SHARES.values()) == 100
    assert list(SECTION_SHARES) == list(SECTION_RULES) == list(PromptSection)


@given(windows, demands())
def test_a_request_is_never_over_its_limit(window: int, asked: PromptDemands) -> None:
    allocation = allocate_prompt(window, asked)
    assert allocation.allocated_tokens <= allocation.limit == compute_request_limit(window)
    assert all(0 <= row.allocated <= row.requested for row in allocation.rows)


@given(windows, demands())
def test_the_order_is_fixed_and_the_same_demands_get_the_same(window: int, asked: PromptDemands) -> None:
    allocation = allocate_prompt(window, asked)
    assert [row.section for row in allocation.rows] == list(PromptSection)
    turned = dict([(layer, asked[layer]) for layer in reversed([*asked])])
    assert allocate_prompt(window, turned) == allocation


@given(windows, demands())
def test_every_part_is_kept_whole_or_said_to_have_given_way(window: int, asked: PromptDemands) -> None:
    for row in allocate_prompt(window, asked).rows:
        parts = {part.name: part for part in asked.get(row.section, ())}
        assert set(row.included) | set(row.omitted) == parts.keys()
        whole = sum(parts[name].tokens for name in row.included if name not in row.omitted)
        assert whole <= row.allocated
        assert list(row.included) == [name for name in parts if name in row.included]


@given(windows, demands())
def test_a_layer_without_firm_neighbours_has_its_share_at_least(window: int, asked: PromptDemands) -> None:
    loose = {layer: [part.replace(required=False, divisible=True) for part in parts] for layer, parts in asked.items()}
    for row in allocate_prompt(window, loose).rows:
        assert row.allocated >= min(row.requested, row.share)


@given(windows, demands())
def test_firm_parts_are_in_as_long_as_they_fit_at_all(window: int, asked: PromptDemands) -> None:
    firm = {part.name for parts in asked.values() for part in parts if part.required and part.tokens}
    size = sum(part.tokens for parts in asked.values() for part in parts if part.required)
    if size <= compute_request_limit(window):
        assert firm.isdisjoint(name for row in allocate_prompt(window, asked).rows for name in row.omitted)


def test_unused_shares_flow_down_and_never_up() -> None:
    wish = [PromptCandidate(name="wish", tokens=10**9, divisible=True)]
    low = allocate_prompt(10_000, {PromptSection.RETRIEVED: wish})
    assert low.get_row(PromptSection.RETRIEVED).allocated == 9_000 * (100 - SECTION_SHARES[PromptSection.WORK]) // 100
    high = allocate_prompt(10_000, {PromptSection.SYSTEM: wish})
    assert high.get_row(PromptSection.SYSTEM).allocated == high.get_row(PromptSection.SYSTEM).share == 450


def test_what_is_firm_and_over_its_share_is_borne_by_all_the_others_alike() -> None:
    wishes = {layer: [PromptCandidate(name="wish", tokens=10**9, divisible=True)] for layer in PromptSection}
    firm = {**wishes, PromptSection.SYSTEM: [PromptCandidate(name="prompt", tokens=4_700, required=True)]}
    rows = allocate_prompt(10_000, firm).rows
    assert rows[0].allocated == 4_700
    assert [row.allocated for row in rows[1:]] == pytest.approx(
        [4_300 * SECTION_SHARES[row.section] / 95 for row in rows[1:]], abs=2
    )


@pytest.mark.parametrize(
    ("layer", "gave_way"),
    [
        (PromptSection.TASK_BRIEF, ("c", "b")),
        (PromptSection.SHORT_TERM, ("a", "b")),
        (PromptSection.PROCEDURAL, ("a", "c")),
        (PromptSection.RETRIEVED, ("a", "c")),
        (PromptSection.OBSERVATIONS, ("b", "a")),
    ],
)
def test_each_layer_has_its_own_rule_of_what_gives_way_first(layer: PromptSection, gave_way: tuple[str, ...]) -> None:
    room = compute_section_tokens(layer, 10_000)
    parts = [
        PromptCandidate(name="a", tokens=room, relevance=0.1),
        PromptCandidate(name="b", tokens=room, relevance=0.9, repeatable=True),
        PromptCandidate(name="c", tokens=room, relevance=0.5),
    ]
    others = {other: full(other, 10_000) for other in PromptSection if other is not layer}
    row = allocate_prompt(10_000, {**others, layer: parts}).get_row(layer)
    assert row.omitted == gave_way
    assert len(row.included) == 1
