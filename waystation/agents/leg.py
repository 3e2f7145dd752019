"""A leg: the stretch of an agent run that one activity carries out. What it is given, and how it can end.

Both cross the workflow's history, so they hold references and numbers, never a conversation.

The terms of a task's agents by role, as its workflow and whoever shows it look them up.
"""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from waystation.agents.action_approvals import ActionDecision, ActionQuestion
from waystation.agents.delegation import DelegationConfig, SubagentOrder, SubagentResult, TeammateState
from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import RunUsage
from waystation.context.policy import PRIMERS, RECENTS, CompactionPolicy, StrategyName
from waystation.context.transcript import Transcript
from waystation.documents.documents import Document
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.roles import list_step_roles
from waystation.kernel.value import Value
from waystation.memory.passages import MemoryScope
from waystation.models.profiles import MIN_THINKING_TOKENS, Effort, Price, ThinkingSetting, get_thinking_tokens

MIN_REPLY_TOKENS = 4_000
"""A reply that may be shorter than this is cut in the middle of a thought or a tool call."""
SMALLEST_REPLY_TOKENS = 256
REPLY_PART = 16
"""The shortest reply that is worth a call is at most this part of an agent's budget."""


def compute_min_reply_tokens(affordable: int | None) -> int:
    """Tokens of the shortest reply that is worth a call, of an agent whose budget pays for so many tokens of reply in
    all; None: for any number.
    """
    if affordable is None:
        return MIN_REPLY_TOKENS
    return max(SMALLEST_REPLY_TOKENS, min(MIN_REPLY_TOKENS, affordable // REPLY_PART))


class AgentConfig(Value):
    """The settings of an agent run, fixed when its task was submitted."""

    model: str
    condense_model: str
    window: int
    """Working window in tokens: the largest request that this agent sends on purpose."""
    trigger: int
    """Tokens of the whole request at which the context counts as full (75 % of the window unless asked otherwise)."""
    target: int
    """Tokens that a compaction aims for (half the trigger)."""
    messages: int | None = None
    """With more messages than these in its view the context counts as full, too."""
    primers: int = PRIMERS
    """At most so many of the first messages outlive a compaction."""
    recents: int = RECENTS
    """At most so many of the last messages outlive a compaction."""
    strategy: StrategyName = "window"
    """How a compaction chooses what a summary is to stand for."""
    keep_last: int | None = None
    """See `RedactionPolicy.keep_last`."""
    auto_compact: bool = True
    """Whether summaries are written where nobody asked for one. Without them, what has to go is hidden."""
    history: int | None = None
    """Most messages of the whole conversation, hidden ones included: then the agent delivers what it has."""
    effort: Effort | None = None
    """None here and in `thinking`: as the provider has it for this model."""
    thinking: ThinkingSetting | None = None
    max_output: int = 4_000
    """Most tokens of one reply, its thinking included."""
    output_floor: int = 4_000
    """Under this a reply is not worth a call: the leg ends instead. More than the tokens set aside for thinking."""
    turn_limit: int = 12
    """Turns of one leg."""
    hard: bool = False
    """Nobody will be asked for more: the agent is told what it has left, so that it hands in before that is spent."""
    prices: tuple[Price, ...] = ()
    """What its models cost, had cost and will cost, as known when the task was submitted."""
    backpressure: bool = True
    """Whether calls are delayed where a budget is nearly spent."""
    memory: MemoryScope = "session"
    """Whose passages it recalls."""
    delegation: DelegationConfig | None = None
    """Within which bounds it may start subagents; None: it may not."""

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
        """For an agent with a small budget: its shortest reply that is worth a call is no larger part of it than in
        `compute_min_reply_tokens`.
        """
        aside = get_thinking_tokens(self.thinking)
        return self.replace(output_floor=min(self.output_floor, aside + compute_min_reply_tokens(tokens)))

    def with_thinking_limit(self, tokens: int) -> "AgentConfig":
        """For an agent with less to spend: fewer tokens set aside for thinking, where some are, and no less than a
        provider takes.
        """
        fewer = get_thinking_tokens(self.thinking) - max(MIN_THINKING_TOKENS, tokens)
        if fewer <= 0:
            return self
        return self.replace(
            thinking=get_thinking_tokens(self.thinking) - fewer,
            max_output=self.max_output - fewer,
            output_floor=self.output_floor - fewer,
        )

    def has_too_many_messages(self, messages: int) -> bool:
        """Whether a view of so many messages is full, whatever their size."""
        return self.messages is not None and messages > self.messages


class LegRequest(Value):
    """One leg to carry out. Running it again after its outcome was committed returns that outcome."""

    run: RunRef
    leg: int
    limit: Limit
    """What the whole agent run may have spent when this leg ends: cumulative, so a retry computes the same."""
    terms: AgentConfig
    task_used: float = 0.0
    """Share of the task's budget that was spent when the leg began."""
    scale: float = 1.0
    """What the provider counted for the run's last request, over what was estimated."""
    handed_back: tuple[SubagentResult, ...] = ()
    """The subagents of this run that have ended: their results answer its open calls."""
    team: tuple[TeammateState, ...] = ()
    """The plan and the siblings as they were when the leg began."""
    drawable: Amount = Amount()
    """What the run could draw from its task when the leg began, beyond its limit."""
    decisions: tuple[ActionDecision, ...] = ()
    """On its open calls, where a person was asked."""


class LoadedRun(NamedTuple):
    """An agent run as an attempt at a leg finds it."""

    transcript: Transcript
    totals: RunUsage
    documents: tuple[Document, ...]
    """Of its task."""


class LegState(Value):
    """Where the agent run stands when a leg ends."""

    totals: RunUsage
    scale: float = 1.0
    notes: tuple[str, ...] = ()
    """What a person should know of this leg ("memory did not answer"), without content."""
    made: WorkCounts = WorkCounts()
    """What the agent has handed over so far."""
    fixed: int = 0
    """Estimated tokens of its system prompt and tools; 0 before its first call."""
    window: int = 0
    """Its working window, also of a subagent whose window is smaller than its task's; 0 before its first call."""


class _Ended(Value):
    standing: LegState


class AgentFinished(_Ended):
    """The agent handed in its result."""

    type: Literal["finished"] = "finished"
    partial: bool = False
    """The model refused, or stopped without a result: what there is was delivered."""
    reason: str = ""


class ContextFull(_Ended):
    """The next request would be over the trigger: compact, then go on."""

    type: Literal["context_full"] = "context_full"
    request_tokens: int


class BudgetExhausted(_Ended):
    """The next call's worst case no longer fits under the limit."""

    type: Literal["allowance_spent"] = "allowance_spent"
    needed: Amount
    """What the next call needs at least, over what is left."""
    unanswered: str = ""
    """Why the last call brought no reply, where none did: what it may have cost counts as spent."""


class OperatorActionRequired(_Ended):
    """No more calls can be made until somebody has seen to something: the provider's account has no money left, its
    endpoint is broken, or text cannot be redacted.
    """

    type: Literal["provider_limit"] = "provider_limit"
    reason: str


class SubagentsRequested(_Ended):
    """The agent waits for subagents, and holds nothing meanwhile."""

    type: Literal["delegated"] = "delegated"
    orders: tuple[SubagentOrder, ...]


class ApprovalRequired(_Ended):
    """The agent's next calls wait for a person, and it holds nothing meanwhile."""

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
    """One entry for research, and one for each role that differs from it: most tasks work alike in all roles."""

    agent: AgentConfig
    """Of research, and of each role that is not in `by_role`."""
    by_role: dict[str, AgentConfig] = {}

    def get_config(self, role: str) -> AgentConfig:
        """Those of the agents of a role."""
        return self.by_role.get(role, self.agent)

    @property
    def models(self) -> dict[str, str]:
        """The agents' models by role; empty where all work with the same."""
        named = {role: self.get_config(role).model for role in list_step_roles()}
        return named if len({*named.values()}) > 1 else {}
