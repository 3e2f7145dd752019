"""The store's side of the account, and the verdict over both sides."""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from sqlalchemy import select

from benchmarks.chaos.model import ANYBODY, Call, CallId
from waystation.context.transcript import Transcript
from waystation.kernel.scopes import SystemScope
from waystation.runtime.sql_store import SqlStore
from waystation.store.schema import charges, runs
from waystation.tasks.view import TaskBudgetView

Key = tuple[int, str, str]
"""Task, agent and the key of charge and intent, as `turn-12`."""


@dataclass
class StoreAccount:
    """What the store says of all tasks."""

    charges: dict[Key, datetime] = field(default_factory=dict[Key, datetime])
    """With the moment just before the reply's commit."""
    intents: list[tuple[Key, datetime]] = field(default_factory=list[tuple[Key, datetime]])
    """Calls that are shown as possibly billed, with the moment before each."""
    transcripts: dict[tuple[int, str], Transcript] = field(default_factory=dict[tuple[int, str], Transcript])


@dataclass(frozen=True)
class Verdict:
    """What must hold, and what does not."""

    asked_again: Sequence[str]
    """Calls for a turn (or plan, or summary) whose reply was committed already."""
    lost: Sequence[str]
    """Turns whose charge or whose reply is missing."""
    unfinished: Sequence[str]
    unexplained: Sequence[str]
    """Where charges ≤ calls answered ≤ charges + open intents does not hold."""
    over_limit: Sequence[str]
    """Tasks that spent more than they could."""
    charges: int
    answered: int
    intents: int

    @property
    def broken(self) -> bool:
        """Whether anything of it does not hold."""
        return any((self.asked_again, self.lost, self.unfinished, self.unexplained, self.over_limit))


async def load_account(store: SqlStore, task_ids: Sequence[str]) -> StoreAccount:
    """Everything that was written for these tasks. Intents are those that the tasks' bills show."""
    account = StoreAccount()
    for task, task_id in enumerate(task_ids):
        async with store.database.read() as connection:
            agents = (await connection.execute(select(runs.c.step_id).where(runs.c.task_id == task_id))).scalars().all()
            mine = select(charges.c.run_id, charges.c.key, charges.c.at).join(runs).where(runs.c.task_id == task_id)
            paid = (await connection.execute(mine)).all()
        account.charges |= {(task, run_id.removeprefix(f"{task_id}/"), key): at for run_id, key, at in paid}
        for unanswered in (await store.list_task_charges(task_id, SystemScope())).cost_breakdown.possibly_billed:
            account.intents.append(((task, unanswered.agent, unanswered.intent.key), unanswered.intent.at))
        for agent in agents:
            account.transcripts[task, agent] = await store.load_transcript(f"{task_id}/{agent}", SystemScope())
    return account


def judge(
    account: StoreAccount,
    calls: Sequence[Call],
    unfinished: Iterable[int],
    budgets: Mapping[int, TaskBudgetView] = MappingProxyType({}),
) -> Verdict:
    """The verdict over what the store and the model's server say."""
    return Verdict(
        asked_again=[*_answered_again(account.charges, calls), *_announced_again(account)],
        lost=[fault for (task, agent) in account.transcripts for fault in _lost(account, task, agent)],
        unfinished=[f"task {task}" for task in unfinished],
        unexplained=_unexplained(account, calls),
        over_limit=[fault for task, budget in budgets.items() for fault in _over_limit(task, budget)],
        charges=len(account.charges),
        answered=len(calls),
        intents=len(account.intents),
    )


def _answered_again(paid: Mapping[Key, datetime], calls: Sequence[Call]) -> list[str]:
    commits = {parse_call_id(key): at.timestamp() for key, at in paid.items()}
    return [f"{call.id} was answered again" for call in calls if call.began > commits.get(call.id, call.began)]


def _announced_again(account: StoreAccount) -> list[str]:
    """Summaries too: their requests do not tell the key, their intents do."""
    return [f"{key} was announced again" for key, at in account.intents if at > account.charges.get(key, at)]


def _lost(account: StoreAccount, task: int, agent: str) -> list[str]:
    """Replies are numbered without a gap, each paid and each in the transcript."""
    messages = account.transcripts[task, agent].messages
    replies = sum(message.role == "assistant" for message in messages)
    paid = {
        int(key.rpartition("-")[2])
        for owner, whose, key in account.charges
        if (owner, whose) == (task, agent) and not key.startswith("summary-")
    }
    faults = [f"task {task}, {agent}: no charge for turn {n}" for n in range(1, replies + 1) if n not in paid]
    faults += [f"task {task}, {agent}: no reply of turn {n}" for n in sorted(paid) if n > replies]
    ids = [message.id for message in messages]
    said, statuses = [[one.id for one in messages if one.is_status == status] for status in (False, True)]
    gap = said != _numbered("m", len(said)) or statuses != _numbered("s", len(statuses))
    return [*faults, f"task {task}, {agent}: messages {', '.join(ids)}"] if gap else faults


def _numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(1, count + 1)]


def _over_limit(task: int, budget: TaskBudgetView) -> Iterator[str]:
    spent, limit = budget.spent.tokens, budget.limit.tokens
    if limit is not None and spent > limit:
        yield f"task {task}: spent {spent:,} of {limit:,} tokens"


def _unexplained(account: StoreAccount, calls: Sequence[Call]) -> list[str]:
    """Turns and plans one by one, the summaries of a task together, and its reviews."""
    paid = Counter(_grouped(parse_call_id(key)) for key in account.charges)
    possible = Counter(_grouped(parse_call_id(key)) for key, _ in account.intents)
    answered = Counter(_grouped(call) for call in number_calls_by_commits(account.charges, calls))
    return [
        f"{what}: {paid[what]} charges, {answered[what]} calls answered, {possible[what]} open intents"
        for what in sorted(paid.keys() | answered.keys())
        if not paid[what] <= answered[what] <= paid[what] + possible[what]
    ]


def number_calls_by_commits(paid: Mapping[Key, datetime], calls: Iterable[Call]) -> list[CallId]:
    """What each call was for, with turns numbered by time: a call for a turn begins after the commit of the turn before
    and before its own. A request's text does not identify its turn: a compaction may run between two attempts.
    """
    commits = defaultdict[tuple[int, str], list[float]](list)
    for (task, agent, name), at in paid.items():
        if name.startswith("turn-"):
            commits[task, agent].append(at.timestamp())
    for committed in commits.values():
        committed.sort()
    return [
        call.id._replace(number=str(bisect(commits[call.id.task, call.id.agent], call.began) + 1))
        if call.id.kind == "turn"
        else call.id
        for call in calls
    ]


def parse_call_id(key: Key) -> CallId:
    """The call that a charge or an intent is of; of a summary without its agent, as the model's server knows it."""
    task, agent, name = key
    kind, _, number = name.partition("-")
    match kind:
        case "turn" | "plan":
            return CallId(task, agent, kind, number)
        case "review":
            return CallId(task, ANYBODY, kind, "")
        case _:
            return CallId(task, ANYBODY, "summary", number)


def _grouped(call: CallId) -> CallId:
    return call._replace(number="") if call.kind == "summary" else call
