"""Subagents in the state of their task: started with what their parent gives up, and settled with it."""

from waystation.domain.agent_run import AgentRun
from waystation.domain.delegation import SubagentNews, SubagentOrder, parent_of
from waystation.domain.leg import AgentTerms
from waystation.domain.task import TaskTerms
from waystation.domain.task_state import TaskState
from waystation.domain.thinking import THINKING_PART

LEAST_WINDOW = 8_000
"""Tokens. Under this an agent spends more on compactions than on its work."""


def taken_on(state: TaskState, parent_id: str, terms: TaskTerms) -> TaskState:
    """The subagents that an agent asked for are among the task's runs, with what is carved from its budget, under the
    terms of their roles. Those that are there already stay as they are.
    """
    for order in state.runs[parent_id].open_orders:
        if order.id not in state.runs:
            own = _terms(terms.agent_of(order.role), order)
            state = _taken_on(state, state.runs[parent_id], order, own)
    return state


def _taken_on(state: TaskState, parent: AgentRun, order: SubagentOrder, terms: AgentTerms) -> TaskState:
    carved = order.limit.amount
    run = AgentRun(
        run=parent.run.model_copy(update={"step_id": order.id, "role": order.role}),
        terms=terms,
        limit=order.limit,
        share=order.limit,
    )
    parent_id = parent.run.step_id
    runs = {**state.runs, parent_id: parent.carving(carved), order.id: run}
    return state.with_(runs=runs, account=state.account.carve(parent_id, order.id, carved))


def _terms(terms: AgentTerms, order: SubagentOrder) -> AgentTerms:
    """A window of half its budget at most, and its share for thinking, so that the worst case of one call does not stop
    it long before that.
    """
    tokens = order.limit.tokens
    if tokens is None:
        return terms
    return terms.thinking_at_most(tokens // THINKING_PART).narrowed(max(LEAST_WINDOW, tokens // 2))


def told(state: TaskState, news: SubagentNews) -> TaskState:
    """How far a subagent is. Of one that has ended, or that is not known, nothing is taken in."""
    run = state.runs.get(news.id)
    if run is None or parent_of(news.id) is None or run.phase == "delivered":
        return state
    return state.with_run(run.told(news))
