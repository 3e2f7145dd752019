"""Arguments and options that commands share: amounts, times, and answers decided in advance (`--top-up 50kx3`,
`--answer-by 07:00`, `--then partial`).

Every error names its option.
"""

import re
import secrets
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import typer

from waystation.agents.action_approvals import TopUpPolicy, UnattendedPolicy
from waystation.agents.deliverables import ReportLength
from waystation.budgets.budget import MIN_BUDGET_MICRO_USD, MIN_BUDGET_TOKENS, BudgetMode
from waystation.kernel.amount import (
    MAX_AMOUNT,
    TOO_SMALL_GRANT,
    Amount,
    Limit,
    describe_forgotten_unit,
    format_number_hint,
    format_tokens_short,
    format_usd,
    parse_bounded_limit,
    parse_token_amount,
)
from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import to_utc
from waystation.security.untrusted import sanitize_line

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="Id of the task, or the first characters of the id.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys; messages go to stderr.")]
AgentOption = Annotated[
    str,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="Id of the agent, like research-1 (for a step) or research-1.2 (for a subagent).",
    ),
]
RequestsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--request",
        metavar="ID",
        help="Id of a request to answer; repeatable. Optional if only one request is open, but always needed to "
        "approve a tool call.",
    ),
]
AllOption = Annotated[
    bool,
    typer.Option("--all", help="Answer all open budget requests; requests about tool calls and plans stay open."),
]
NoteOption = Annotated[str, typer.Option("--note", metavar="TEXT", help="Note for the audit log.")]
DeliveryNoteOption = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="Note for the audit log; agents read it, too.")
]
DenialNoteOption = Annotated[
    str,
    typer.Option(
        "--note", metavar="TEXT", help="Note for the audit log; the agent of a denied tool call sees it, too."
    ),
]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Name to record as yours; default: your user name.")
]

AcceptOption = Annotated[
    list[str] | None,
    typer.Option("--accept", metavar="TEXT", help="Criterion that the report must meet; repeatable."),
]
LengthOption = Annotated[
    ReportLength | None,
    typer.Option(
        "--length",
        metavar="LENGTH",
        help="Length of the report: short, medium or long; default: by the number of findings.",
    ),
]
InstructionsOption = Annotated[
    Path | None, typer.Option("--instructions", metavar="FILE", help="File with instructions for the agents.")
]
ProceduresOption = Annotated[
    list[Path] | None,
    typer.Option("--procedures", metavar="PATH", help="Markdown file or folder with procedures to follow."),
]
SkillsOption = Annotated[
    list[Path] | None,
    typer.Option("--skills", metavar="FOLDER", help="Folder with a SKILL.md, or with several such folders."),
]
ServersOption = Annotated[
    str | None,
    typer.Option(
        "--servers",
        metavar="NAMES",
        help="MCP servers to use, like a,b. `default,c` adds c to the default servers; `none` uses no servers.",
    ),
]
Deadline = Literal["partial", "wait"]
"""What happens at a deadline."""
CeilingOption = Annotated[
    str | None,
    typer.Option("--ceiling", metavar="AMOUNT", help="Maximum to which grants may raise the budget, like 2M or '$5'."),
]
TopUpOption = Annotated[
    str | None,
    typer.Option(
        "--top-up", metavar="AMOUNTxN", help="Grants approved in advance, like 50kx3 (50k, three times) or '$0.25x4'."
    ),
]
ThenOption = Annotated[
    Deadline | None,
    typer.Option(
        "--then",
        metavar="ACTION",
        help="What happens when --answer-by has passed: partial (default; deliver what is done) or wait (keep "
        "waiting).",
    ),
]
ModeOption = Annotated[
    BudgetMode | None,
    typer.Option("--mode", metavar="MODE", help="When the budget is spent: approval (default), soft or hard."),
]
RequestIdOption = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="Id for a safe retry: the same id finds the same task."),
]
DetachOption = Annotated[bool, typer.Option("--detach", help="Return at once instead of following the task.")]

MIN_LIMIT = Amount(tokens=1, micro_usd=1)
MIN_BUDGET = Amount(tokens=MIN_BUDGET_TOKENS, micro_usd=MIN_BUDGET_MICRO_USD)


def parse_document_path(text: str) -> Path:
    """Parse the path of a file or folder to read. Raises BadInput for an empty one and for a web address."""
    if not text.strip():
        raise BadInput("the path is empty; name a file or folder, like contracts/ or notes.md")
    if text.lower().startswith(("http://", "https://")):
        raise BadInput(
            f"{sanitize_line(text)} is a web address. Save the page as a file and name that file, or allow agents to "
            "read the web with WAYSTATION_WEB=true."
        )
    return Path(text)


def parse_tokens(text: str, name: str, lowest: int = 1, highest: int = MAX_AMOUNT.tokens) -> int:
    """Parse a number of tokens. Raises BadInput with the option's name and its range."""
    allowed = f"{name} takes {lowest:,} to {highest:,} tokens, written like 30k, 1.5M or 600_000"
    try:
        tokens = parse_token_amount(text)
    except ValueError as error:
        raise BadInput(f"{allowed}, not {sanitize_line(text)!r}{format_number_hint(text)}") from error
    if not lowest <= tokens <= highest:
        raise BadInput(f"{allowed}; {sanitize_line(text)!r} is outside this range")
    return tokens


def parse_limit(text: str, name: str, minimum: Amount = MIN_LIMIT) -> Limit:
    """Parse tokens, dollars or both, at least `minimum` of each.

    Raises BadInput with the option's name and what it accepts.
    """
    try:
        return parse_bounded_limit(text, minimum)
    except ValueError as error:
        raise BadInput(f"{name} takes {error}") from error


def parse_budget(text: str, name: str) -> Limit:
    """Parse the budget of a session, a task or an agent: enough to start with. Raises BadInput."""
    _refuse_forgotten_unit(text, name, "too few to start with", below=1_000)
    return parse_limit(text, name, MIN_BUDGET)


def parse_amount(text: str, name: str) -> Amount:
    """Parse an amount to grant. Raises BadInput; also for a plain small number, whose unit was probably forgotten."""
    _refuse_forgotten_unit(text, name, TOO_SMALL_GRANT, below=MIN_BUDGET.tokens)
    return parse_limit(text, name).amount


def _refuse_forgotten_unit(text: str, name: str, why: str, below: int) -> None:
    if question := describe_forgotten_unit(text, why, below):
        raise BadInput(f"{name} {question}")


def resolve_request_id(given: str | None) -> str:
    """Return the idempotency key of a submission: the given one, or a new one. Raises BadInput if it is empty."""
    if given is None:
        return secrets.token_hex(8)
    if not given.strip():
        raise BadInput("--request-id is empty, so a retry could not find the task: give an id, or leave the option out")
    return given


def format_amount_option(amount: Amount) -> str:
    """Format the amount as an option accepts it: few tokens with a unit, as `parse_amount` requires."""
    tokens = str(amount.tokens) if amount.tokens >= MIN_BUDGET.tokens else f"{Decimal(amount.tokens) / 1_000}k"
    parts = [tokens] if amount.tokens else []
    return "+".join([*parts, *([format_usd(amount.micro_usd)] if amount.micro_usd else [])])


def format_short_limit(limit: Limit) -> str:
    """Format a limit briefly: `600k`, `$2.00`, `600k $2.00`."""
    parts = [format_tokens_short(limit.tokens)] if limit.tokens is not None else []
    return " ".join([*parts, *([format_usd(limit.micro_usd)] if limit.micro_usd is not None else [])]) or "-"


def format_short_spent(spent: Amount, limit: Limit) -> str:
    """Format the spent amount, in the units of its limit."""
    return format_short_limit(
        Limit(
            tokens=None if limit.tokens is None and limit.micro_usd is not None else spent.tokens,
            micro_usd=None if limit.micro_usd is None else spent.micro_usd,
        )
    )


def format_moment(moment: datetime, now: datetime) -> str:
    """Format a time in the zone of `now`: `18:03` today, `24 Nov 18:03` this year, else `24 Nov 2025`."""
    there = moment.astimezone(now.tzinfo)
    if there.date() == now.date():
        return f"{there:%H:%M}"
    return f"{there:%d %b %H:%M}" if there.year == now.year else f"{there:%d %b %Y}"


DATE_OR_MOMENT = "a date (2026-11-01) or a date and time (2026-11-01T07:00)"


def parse_moment(text: str | None, option: str, now: datetime, takes: str = DATE_OR_MOMENT) -> datetime | None:
    """Parse a time; None if none is given. A date is its first moment; without a zone, that of `now` holds,
    with its offset at that time.

    Raises BadInput.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadInput(f"{option} takes {takes}, not {sanitize_line(text)!r}") from error
    return _in_time(found if found.tzinfo else found.replace(tzinfo=now.tzinfo), option)


def _in_time(found: datetime, option: str) -> datetime:
    """Return the time if UTC can express it. Raises BadInput."""
    try:
        to_utc(found)
    except ValueError as error:
        raise BadInput(f"{option}: {error}; give another time") from None
    return found


def parse_moment_or_age(text: str | None, option: str, now: datetime) -> datetime | None:
    """Parse a time, or an age such as 2d. Raises BadInput."""
    if text is not None and _SPAN.fullmatch(text.strip()):
        return now.astimezone(UTC) - parse_span(text, option)
    return parse_moment(
        text, option, now, "a date (2026-11-01), a date and time (2026-11-01T07:00) or how long ago (2d)"
    )


def parse_past_moment(text: str | None, option: str, now: datetime) -> datetime | None:
    """Parse a time in the past, or an age. Raises BadInput."""
    found = parse_moment_or_age(text, option, now)
    if found is not None and found.astimezone(UTC) > now:
        raise BadInput(f"{option} {text} is in the future: the present time is {now:%Y-%m-%dT%H:%M}")
    return found


_TIMES = compile_bounded(r"\A(?P<amount>.*\S)\s*+[x×*]\s*+(?P<times>\d{1,4})", re.ASCII)
_SPAN = compile_bounded(r"(?P<number>\d{1,4})\s*(?P<unit>[mhd])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
MAX_TOP_UPS = 1_000


def parse_span(text: str, name: str) -> timedelta:
    """Parse a duration such as 90m, 12h or 7d. Raises BadInput with the option's name."""
    span = _SPAN.fullmatch(text.strip())
    if span is None:
        raise BadInput(f"{name} takes minutes, hours or days, like 90m, 12h or 7d, not {sanitize_line(text)!r}")
    return timedelta(**{_UNITS[span["unit"]]: int(span["number"])})


def parse_unattended_options(
    top_up: str | None, answer_by: str | None, then: Deadline | None, now: datetime
) -> UnattendedPolicy:
    """Parse the options into the task's policy. `now` has the person's time zone. Raises BadInput."""
    raises = None if top_up is None else _top_up(top_up)
    if answer_by is None:
        if then is not None:
            raise BadInput(f"--then {then} needs a deadline: give --answer-by, too")
        return UnattendedPolicy(top_up=raises)
    then = then or "partial"
    span = _SPAN.fullmatch(answer_by.strip())
    if span is not None:
        within = parse_span(answer_by, "--answer-by")
        if not within:
            raise BadInput(f"--answer-by {answer_by} leaves no time to answer: give a minute (1m) or more")
        return UnattendedPolicy(top_up=raises, answer_within=within, at_deadline=then)
    return UnattendedPolicy(top_up=raises, answer_by=_moment(answer_by.strip(), now), at_deadline=then)


def _top_up(text: str) -> TopUpPolicy:
    found = _TIMES.fullmatch(text.strip())
    if found is None or not 1 <= int(found["times"]) <= MAX_TOP_UPS:
        raise BadInput(
            f"--top-up takes an amount and how often (1 to {MAX_TOP_UPS:,} times), like 50kx3 or $0.25x4, not "
            f"{sanitize_line(text)!r}"
        )
    return TopUpPolicy(amount=parse_amount(found["amount"], "--top-up"), times=int(found["times"]))


def _moment(text: str, now: datetime) -> datetime:
    """Parse a time: a clock time is the next one; a date and time without a zone is in the person's zone."""
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return _date(text, now)
    there = now.astimezone(clock.tzinfo or now.tzinfo)
    today = datetime.combine(there.date(), clock, tzinfo=there.tzinfo)
    # Two times of one zone are compared as the clock shows them, which is wrong in the hour that happens twice.
    return today if to_utc(today) > now else today + timedelta(days=1)


def _date(text: str, now: datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            "--answer-by takes a time (07:00), a date and time (2026-11-30T07:00), or how long each request "
            "waits (90m, 7d), "
            f"not {sanitize_line(text)!r}"
        ) from error
    moment = _in_time(moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo), "--answer-by")
    if to_utc(moment) <= now:
        raise BadInput(f"--answer-by {text} is in the past")
    return moment
