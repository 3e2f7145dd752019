"""A leg: the turns of an agent run that one activity executes, with its request and its possible outcomes.

Both cross workflow history, so they hold references and numbers, never a conversation.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from waystation.agents.action_approvals import ActionDecision, ActionQuestion
from waystation.agents.delegation import DelegationConfig, SubagentOrder, SubagentResult, TeammateState
from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import RunUsage
from waystation.context.policy import PRIMERS, RECENTS, CompactionPolicy, StrategyName
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.roles import list_step_roles
from waystation.kernel.value import Value
from waystation.memory.passages import MemoryScope
from waystation.models.profiles import MIN_THINKING_TOKENS, Effort, Price, ThinkingSetting, get_thinking_tokens
from waystation.security.web_addresses import WebLimits

MIN_REPLY_TOKENS = 4_000
"""Minimum reply length in tokens for a normal budget: a shorter reply would be cut mid-thought or mid-call."""
REDUCED_MIN_REPLY_TOKENS = 256
MIN_REPLY_DIVISOR = 16
"""The shortest reply worth a call is at most 1/16 of what the agent's budget pays for."""


def compute_min_reply_tokens(affordable: int | None) -> int:
    """Return the shortest reply worth a call, in tokens.

    Args:
        affordable: Reply tokens that the agent's budget pays for in total; None: unlimited.
    """
    if affordable is None:
        return MIN_REPLY_TOKENS
    return max(REDUCED_MIN_REPLY_TOKENS, min(MIN_REPLY_TOKENS, affordable // MIN_REPLY_DIVISOR))


class AgentConfig(Value):
    """Settings of an agent run, fixed when its task was submitted."""

    model: str
    condense_model: str
    window: int
    """Working window in tokens: the largest request that this agent sends on purpose."""
    trigger: int
    """Size of the whole request, in tokens, at which the context counts as full (75 % of the window by default)."""
    target: int
    """Target of a compaction, in tokens (half the trigger by default)."""
    max_view_messages: int | None = None
    """Number of messages in the view above which the context counts as full, too."""
    primers: int = PRIMERS
    """Maximum number of first messages that survive a compaction."""
    recents: int = RECENTS
    """Maximum number of last messages that survive a compaction."""
    strategy: StrategyName = "window"
    """How a compaction chooses which messages a summary replaces."""
    keep_last: int | None = None
    """See `CompactionPolicy.keep_last`."""
    auto_compact: bool = True
    """Whether summaries are written unprompted. Without them, what has to go is hidden."""
    max_messages: int | None = None
    """Maximum number of messages in the whole conversation, including hidden ones; then the agent
    delivers what it has.
    """
    effort: Effort | None = None
    """None here and in `thinking`: the provider's default for this model."""
    thinking: ThinkingSetting | None = None
    max_output: int = 4_000
    """Maximum tokens of one reply, including its thinking."""
    min_reply_tokens: int = 4_000
    """Minimum reply length in tokens: if less fits, the leg ends instead. Larger than the tokens set aside for
    thinking.
    """
    turn_limit: int = 12
    """Maximum turns of one leg."""
    hard_budget: bool = False
    """Whether no one will be asked for more budget: the agent is then shown what is left, so that it
    submits in time.
    """
    prices: tuple[Price, ...] = ()
    """Prices of its models, past, present and future, as known when the task was submitted."""
    backpressure: bool = True
    """Whether calls are delayed when a budget is nearly spent."""
    memory: MemoryScope = "session"
    """Scope of the passages that it recalls."""
    delegation: DelegationConfig | None = None
    """Limits within which it may start subagents; None: it may not."""
    web_limits: WebLimits | None = None
    """Limits within which its use of the web was approved in advance; None: it was not, and is not limited."""

    @property
    def compaction_policy(self) -> CompactionPolicy:
        """How its context is compacted when it is full."""
        return CompactionPolicy(
            window=self.window,
            strategy=self.strategy,
            trigger=self.trigger,
            target=self.target,
            keep_last=self.keep_last,
            primers=self.primers,
            recents=self.recents,
        )

    def with_scaled_min_reply(self, tokens: int) -> "AgentConfig":
        """Return the config for a small budget: the minimum reply is scaled as in `compute_min_reply_tokens`."""
        aside = get_thinking_tokens(self.thinking)
        return self.replace(min_reply_tokens=min(self.min_reply_tokens, aside + compute_min_reply_tokens(tokens)))

    def with_thinking_limit(self, tokens: int) -> "AgentConfig":
        """Return the config with fewer thinking tokens for a smaller budget, but no fewer than a provider accepts."""
        fewer = get_thinking_tokens(self.thinking) - max(MIN_THINKING_TOKENS, tokens)
        if fewer <= 0:
            return self
        return self.replace(
            thinking=get_thinking_tokens(self.thinking) - fewer,
            max_output=self.max_output - fewer,
            min_reply_tokens=self.min_reply_tokens - fewer,
        )

    def has_too_many_messages(self, messages: int) -> bool:
        """Return whether a view of this many messages counts as full, whatever their size."""
        return self.max_view_messages is not None and messages > self.max_view_messages


class LegRequest(Value):
    """One leg to run. Running it again after its outcome was committed returns that outcome."""

    run: RunRef
    leg: int
    limit: Limit
    """What the whole agent run may have spent when this leg ends: cumulative, so a retry computes the same."""
    config: AgentConfig
    task_spent_share: float = 0.0
    """Share of the task's budget that was spent when the leg began (0 to 1)."""
    token_ratio: float = 1.0
    """Ratio of the provider's count to our estimate for the run's last request."""
    subagent_results: tuple[SubagentResult, ...] = ()
    """Subagents of this run that have ended: their results answer its open calls."""
    teammates: tuple[TeammateState, ...] = ()
    """The plan and the sibling agents when the leg began."""
    available_from_task: Amount = Amount()
    """What the run could draw from its task, beyond its limit, when the leg began."""
    decisions: tuple[ActionDecision, ...] = ()
    """People's decisions on its open calls."""


class LegState(Value):
    """State of the agent run at the end of a leg."""

    totals: RunUsage
    token_ratio: float = 1.0
    notes: tuple[str, ...] = ()
    """What a person should know of this leg ("memory did not answer"), without content."""
    work_counts: WorkCounts = WorkCounts()
    """Work that the agent has delivered so far."""
    fixed_tokens: int = 0
    """Estimated tokens of its system prompt and tools; 0 before its first call."""
    window: int = 0
    """Its working window in tokens, which may be smaller than its task's for a subagent; 0 before its first call."""


class _Ended(Value):
    state: LegState


class AgentFinished(_Ended):
    """The agent submitted its result."""

    type: Literal["finished"] = "finished"
    partial: bool = False
    """The model refused, or stopped without a result: what existed was delivered."""
    reason: str = ""


class ContextFull(_Ended):
    """The next request would exceed the trigger: compact, then go on."""

    type: Literal["context_full"] = "context_full"
    request_tokens: int
    window_exceeded: bool = False
    """Whether the model said so in its last reply, whatever the request's size."""


class BudgetExhausted(_Ended):
    """The next call's worst case no longer fits the limit."""

    type: Literal["allowance_spent"] = "allowance_spent"
    needed: Amount
    """Minimum that the next call needs beyond what is left."""
    unanswered: str = ""
    """Why the last call brought no reply, if it did not: its possible cost counts as spent."""


class OperatorActionRequired(_Ended):
    """No more calls are possible until a person has acted.

    The provider's account is empty, its endpoint is broken, or a text cannot be redacted.
    """

    type: Literal["provider_limit"] = "provider_limit"
    reason: str
    resets_at: datetime | None = None
    """When the provider's account may be used again, if the provider said so."""


class SubagentsRequested(_Ended):
    """The agent waits for subagents and holds no resources meanwhile."""

    type: Literal["delegated"] = "delegated"
    orders: tuple[SubagentOrder, ...]


class ApprovalRequired(_Ended):
    """The agent's next calls wait for a person, and it holds no resources meanwhile."""

    type: Literal["actions_asked"] = "actions_asked"
    questions: tuple[ActionQuestion, ...]


class TurnLimitReached(_Ended):
    """The leg's turn or time limit was reached; the next leg goes on."""

    type: Literal["turn_limit"] = "turn_limit"


class Interrupted(_Ended):
    """The worker is shutting down; another one goes on."""

    type: Literal["yielded"] = "yielded"


LegOutcome = Annotated[
    AgentFinished
    | ContextFull
    | BudgetExhausted
    | OperatorActionRequired
    | SubagentsRequested
    | ApprovalRequired
    | TurnLimitReached
    | Interrupted,
    Field(discriminator="type"),
]


class AgentConfigByRole(Value):
    """Agent configs of a task by role. Only roles that differ from research have an entry of their own."""

    default: AgentConfig
    """Config of research, and of each role that is not in `by_role`."""
    by_role: dict[str, AgentConfig] = {}

    def get_config(self, role: str) -> AgentConfig:
        """Return the config of a role's agents."""
        return self.by_role.get(role, self.default)

    @property
    def models(self) -> dict[str, str]:
        """The agents' models by role; empty if all roles use the same one."""
        named = {role: self.get_config(role).model for role in list_step_roles()}
        return named if len({*named.values()}) > 1 else {}
