"""A request in words: what it is for, what a denial delivers, who answered. No text from the work."""

from collections.abc import Sequence

from waystation.domain.amount import Amount, Limit, amount_text, limit_text
from waystation.domain.delegation import parent_of
from waystation.domain.outlook import Outlook
from waystation.domain.task import Approval
from waystation.domain.unattended import IN_ADVANCE
from waystation.domain.work import Made

ABOUT_DIGITS = 2
"""Figures of a number that is said to be about right."""


def counted(number: int, noun: str) -> str:
    """The number with its noun: 1 leg, 2 legs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def in_units(amount: Amount, limit: Limit) -> str:
    """The amount in the units of its limit, also where it is nothing: `$0.00` and no tokens of a budget in dollars."""
    if limit.unlimited:
        return amount_text(amount)
    tokens, micro_usd = limit.tokens is not None, limit.micro_usd is not None
    return limit_text(
        Limit(tokens=amount.tokens if tokens else None, micro_usd=amount.micro_usd if micro_usd else None)
    )


def estimate_text(seen: Outlook, asked: Amount) -> str:
    """`7 calls so far, about 4,200 tokens each: 30,000 tokens more are worth about 7`; and what a ceiling leaves."""
    text = "no call so far"
    if seen.calls:
        text = f"{counted(seen.calls, 'call')} so far, about {amount_text(_about(seen.each))} each"
    if not seen.grantable:
        room = f"the task's ceiling leaves {limit_text(seen.room)} for grants, too little for its next call"
        return f"{text}; {room}: deny it, or cancel the task"
    if seen.calls and seen.worth:
        text = f"{text}: {amount_text(asked)} more are worth about {seen.worth:,}"
    if not seen.room.covers(asked):
        text = f"{text}; the task's ceiling leaves {limit_text(seen.room)} for grants: approve no more than that"
    return text


def steps_text(approval: Approval) -> str:
    """What the task had spent, how many of its steps were finished, and what stays reserved for those to come."""
    spent, seen = f"the task had spent {in_units(approval.task_spent, approval.limit)}", approval.outlook
    if seen is None:
        return f"{spent}, with {counted(approval.steps_left, 'step')} to finish"
    text = f"{spent}, with {seen.finished} of {counted(seen.finished + approval.steps_left, 'step')} finished"
    keep = "keeps its" if seen.to_come == 1 else "keep their"
    return f"{text}; {seen.to_come} to come {keep} {in_units(seen.kept, approval.limit)}" if seen.to_come else text


def made_text(made: Made) -> str:
    """`3 notes and 1 section`; `nothing`."""
    counts = ((made.notes, "note"), (made.findings, "finding"), (made.sections, "section"))
    return _listed([counted(number, noun) for number, noun in counts if number]) or "nothing"


def denial_text(seen: Outlook, agent: str) -> str:
    """What a denial delivers that does not cancel the task: it follows on `if denied`."""
    has = made_text(seen.made)
    if (parent := parent_of(agent)) is not None:
        return f"{agent} hands {has} back to {parent}, which goes on with that, and the task ends partial"
    if seen.needed_by:
        goes_on = "goes" if len(seen.needed_by) == 1 else "go"
        return f"{agent} ends with {has}, {_listed(seen.needed_by)} {goes_on} on with that, and the task ends partial"
    return f"{agent} ends with {has}, and the report is partial: what other steps found stands in for the rest"


def answer_text(approval: Approval, *, over: bool, origin: str = "") -> str:
    """A request and its answer, for an audit. `origin`: where the answer came from, where that is known."""
    asked = _asked(approval)
    claim = "; ".join(filter(None, ("a name as given" if approval.by else "", origin)))
    by = f" by {approval.by or 'nobody named'} ({claim})" if claim else ""
    note = f": {approval.note}" if approval.note else ""
    granted = "" if approval.granted.nothing else f"{amount_text(approval.granted)} "
    match approval.decision:
        case "pending":
            return f"{asked}; {'nobody answered' if over else 'not answered yet'}"
        case "approved" if approval.by == IN_ADVANCE:
            return f"{asked}; {granted}were {IN_ADVANCE}{note}"
        case "approved":
            return f"{asked}; {granted}approved{by}{note}"
        case "denied" | "withdrawn" as end:
            return f"{asked}; {end}{by}{note}"
        case "expired" if approval.action is not None and approval.note:
            return f"{asked}; not answered, since {approval.note}"
        case "expired":
            end = "its deadline" if approval.answer_by is not None else "the task's end"
            return f"{asked}; nobody answered until {end}"


def _asked(approval: Approval) -> str:
    if approval.action is not None:
        return f"{approval.agent} asked to call {approval.action.tool}"
    after = f" after {counted(approval.outlook.calls, 'call')}" if approval.outlook is not None else ""
    if approval.reason:
        return f"{approval.agent} made no more calls{after} ({approval.reason})"
    return f"{approval.agent} asked for {amount_text(approval.asked)}{after}"


def _about(amount: Amount) -> Amount:
    return Amount(tokens=_rounded(amount.tokens), micro_usd=_rounded(amount.micro_usd))


def _rounded(number: int) -> int:
    return round(number, min(0, ABOUT_DIGITS - len(str(number))))


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)
