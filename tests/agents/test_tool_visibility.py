"""What agents see of their tools: by permission, phase and budget; in a fixed order, the same every time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from waystation.agents.tool_visibility import (
    FIRST,
    LAST,
    LATER,
    SOON,
    AgentPermissions,
    CandidateTool,
    PhaseUrgency,
    ToolPolicy,
    compute_tool_visibility,
    make_urgency,
)
from waystation.kernel.roles import AGENT_PHASES, AgentPhase, ToolPermission, get_role_spec, list_agent_roles

permissions: st.SearchStrategy[ToolPermission] = st.sampled_from(sorted(get_role_spec("research").permissions))
phases: st.SearchStrategy[AgentPhase] = st.sampled_from(AGENT_PHASES)
urgencies: st.SearchStrategy[PhaseUrgency] = st.dictionaries(phases, st.integers(FIRST, LAST))
rights = st.builds(
    AgentPermissions,
    role=st.sampled_from(list_agent_roles()),
    may_delegate=st.booleans(),
    denied=st.lists(st.sampled_from(["tool-1", "tool-*", "web", "note", "t?ol-2", "submit", "*"]), max_size=2).map(
        tuple
    ),
)


@st.composite
def offers(draw: st.DrawFn) -> list[CandidateTool]:
    return [
        CandidateTool(
            name=f"tool-{number}",
            tokens=draw(st.integers(0, 900)),
            permission=draw(permissions),
            urgency=draw(urgencies),
            unusable_reason=draw(st.sampled_from(["", "", "its limit is amiss"])),
            is_added=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


def tool(
    name: str, tokens: int = 100, permission: ToolPermission = "read", urgency: PhaseUrgency | None = None
) -> CandidateTool:
    return CandidateTool(name=name, tokens=tokens, permission=permission, urgency=urgency or make_urgency(LATER))


def added(name: str, tokens: int, urgency: PhaseUrgency | None = None) -> CandidateTool:
    return tool(name, tokens, "foreign", urgency).replace(is_added=True)


RESEARCH = AgentPermissions(role="research", may_delegate=True)


@given(offers(), phases, rights, st.integers(0, 3_000))
def test_nothing_is_shown_without_permission_and_nothing_out_of_its_phase(
    offered: list[CandidateTool], phase: AgentPhase, having: AgentPermissions, budget: int
) -> None:
    for one in compute_tool_visibility(offered, phase, having, budget).shown:
        assert having.find_denial_reason(one) is None
        assert one.permission in get_role_spec(having.role).permissions
        assert phase in one.urgency or one.permission == "submit"


@given(offers(), phases, rights, st.integers(0, 3_000))
def test_added_tools_are_never_over_the_budget_and_our_own_are_never_hidden_for_their_size(
    offered: list[CandidateTool], phase: AgentPhase, having: AgentPermissions, budget: int
) -> None:
    made = compute_tool_visibility(offered, phase, having, budget)
    assert sum(one.tokens for one in made.shown if one.is_added and one.permission != "submit") <= budget
    assert all(one.is_added for one in offered if one.name in made.crowded_out)
    may = get_role_spec(having.role).permissions
    can_submit = [one for one in offered if one.permission == "submit" and "submit" in may]
    assert {one.name for one in can_submit} <= made.names


@given(offers(), phases, rights, st.integers(0, 3_000))
def test_every_tool_is_shown_or_hidden_with_a_reason_in_the_order_of_the_offer(
    offered: list[CandidateTool], phase: AgentPhase, having: AgentPermissions, budget: int
) -> None:
    made = compute_tool_visibility(offered, phase, having, budget)
    assert made == compute_tool_visibility(offered, phase, having, budget)
    places = {one.name: place for place, one in enumerate(offered)}
    for names in ([one.name for one in made.shown], [one.name for one in made.hidden]):
        assert names == sorted(names, key=places.__getitem__)
    assert {one.name for one in made.hidden} == places.keys() - made.names
    assert all(one.reason for one in made.hidden)


@given(offers(), phases, rights, st.integers(0, 3_000))
def test_what_is_hidden_for_its_size_would_not_fit_beside_all_that_is_as_urgent(
    offered: list[CandidateTool], phase: AgentPhase, having: AgentPermissions, budget: int
) -> None:
    made = compute_tool_visibility(offered, phase, having, budget)
    by_name = {one.name: one for one in offered}
    for hidden in made.hidden:
        if "tokens for added tools were left" in hidden.reason:
            own = by_name[hidden.name].urgency[phase]
            rivals = [
                one for one in made.shown if one.is_added and one.permission != "submit" and one.urgency[phase] <= own
            ]
            assert sum(one.tokens for one in rivals) + hidden.tokens > budget


def test_the_most_urgent_come_first_and_a_smaller_one_takes_the_room_that_a_larger_one_leaves() -> None:
    offered = [
        added("handy", 300),
        added("large", 900, make_urgency(SOON)),
        added("needed", 500, make_urgency(FIRST)),
        tool("submit", 200, "submit"),
        tool("own", 5_000),
    ]
    made = compute_tool_visibility(offered, "executing", RESEARCH, 800)
    assert [one.name for one in made.shown] == ["handy", "needed", "submit", "own"]
    assert made.get_hidden_reason("large") == snapshot(
        "its definition has 900 tokens, and only 300 of the 800 tokens for added tools were left"
    )


def test_what_hands_in_stays_without_a_budget_and_whatever_is_denied() -> None:
    rights = AgentPermissions(role="writing", may_delegate=False, denied=("*", "submit"))
    made = compute_tool_visibility([tool("submit", 200, "submit"), tool("read")], "verifying", rights, 0)
    assert [one.name for one in made.shown] == ["submit"]


def test_reasons_say_what_hides_a_tool() -> None:
    rights = AgentPermissions(role="analysis", may_delegate=False, denied=("tickets__*", "compute"))
    offered = [
        tool("fetch_page", permission="web"),
        tool("delegate", permission="delegate"),
        tool("tickets__close", permission="foreign"),
        tool("calculate", permission="compute"),
        tool("search", urgency={"executing": FIRST}),
        tool("read").replace(unusable_reason="limits are set for parameters that the tool does not have: lmit"),
    ]
    made = compute_tool_visibility(offered, "verifying", rights, 2_000)
    assert {one.name: one.reason for one in made.hidden} == snapshot(
        {
            "fetch_page": "the role analysis does not have the permission web",
            "delegate": "this agent may not start subagents",
            "tickets__close": "the settings deny tickets__*",
            "calculate": "the settings deny compute",
            "search": "not available while verifying",
            "read": "limits are set for parameters that the tool does not have: lmit",
        }
    )


@pytest.mark.parametrize(
    ("policy", "window", "budget"),
    [
        (ToolPolicy(), 200_000, 20_000),
        (ToolPolicy(), 4_000, 400),
        (ToolPolicy(added_tool_tokens=0), 200_000, 0),
    ],
)
def test_the_room_for_added_tools_follows_the_window(policy: ToolPolicy, window: int, budget: int) -> None:
    assert policy.compute_added_tool_budget(window) == budget
