"""The report: what the agents wrote, and an account of how it came about, in Markdown."""

from waystation.domain.citations import FailedCitation
from waystation.domain.details import cost_text
from waystation.domain.task import Approval, TaskPhase, TaskProgress
from waystation.domain.value import Value
from waystation.domain.work import Analysis, Finding, Findings, ReportDraft

OFFLINE_WARNING = (
    "> **No LLM wrote this.** The built-in offline model searched the documents, copied the best passages word for "
    "word and put them in order. It understands nothing; read it as an index, not as an answer."
)


class StepFindings(Value):
    """What one research step handed in, or had noted when it was stopped."""

    title: str
    findings: Findings


class ReportParts(Value):
    """Everything that a report is made of."""

    question: str
    draft: ReportDraft
    findings: tuple[StepFindings, ...]
    analysis: Analysis | None
    progress: TaskProgress
    offline: bool


def written_part(parts: ReportParts) -> str:
    """What the agents wrote; where the writing was not finished, the findings stand in for it."""
    draft = parts.draft
    whole = bool(draft.title)
    lines = [f"# {draft.title or parts.progress.title or 'Report'}"]
    if not whole:
        lines.append(f"> **Partial.** {_why_partial(parts.progress)}")
    lines += [f"**Question.** {parts.question}", draft.summary]
    lines += [f"## {section.heading}\n\n{section.markdown}" for section in draft.sections]
    if not whole:
        lines += _stand_in(parts)
    return "\n\n".join(filter(None, lines))


def whole_report(parts: ReportParts, written: str, checked: int, failed: tuple[FailedCitation, ...]) -> str:
    """The report as it is stored: warning, written part, the check of its citations, and the account."""
    pieces = [OFFLINE_WARNING if parts.offline else "", written, _citations(checked, failed), _account(parts.progress)]
    return "\n\n".join(filter(None, pieces)) + "\n"


def _why_partial(progress: TaskProgress) -> str:
    reasons = [f"{step.id}: {step.reason}" for step in progress.steps if step.reason]
    if progress.phase is TaskPhase.CANCELLED:
        reasons.insert(0, "the task was cancelled")
    why = "; ".join(reasons) or "the writing step did not run"
    return f"This report was not finished ({why}). What was found follows."


def _stand_in(parts: ReportParts) -> list[str]:
    blocks = [
        f"## Findings: {step.title}\n\n" + "\n".join(map(_bullet, step.findings.findings))
        for step in parts.findings
        if step.findings.findings
    ]
    if parts.analysis is not None and parts.analysis.conclusions:
        blocks.append("## Conclusions\n\n" + "\n".join(map(_bullet, parts.analysis.conclusions)))
    return blocks or ["Nothing was found before the work stopped."]


def _bullet(finding: Finding) -> str:
    return f"- {' '.join([' '.join(finding.claim.split()), *finding.citations])}"


def _citations(checked: int, failed: tuple[FailedCitation, ...]) -> str:
    if not failed:
        return (
            f"## Citations\n\nAll {checked} citations were checked against the documents, and hold." if checked else ""
        )
    lines = [f"- {item.citation}: {item.reason}" for item in failed]
    head = f"## Citations that did not check\n\n{len(failed)} of {checked} citations do not hold:"
    return "\n".join([head, "", *lines])


def _account(progress: TaskProgress) -> str:
    usage = progress.totals.usage
    lines = [
        "## How this report came about",
        "",
        f"- Task `{progress.task_id}`, model `{progress.model}`, {progress.totals.turns} model turns in "
        f"{progress.legs} legs",
        f"- Tokens: {usage.input:,} input, {usage.cache_write:,} cache write, {usage.cache_read:,} cache read, "
        f"{usage.output:,} output; cost: {cost_text(progress)}",
        f"- Budget: {progress.budget.spent:,} of {progress.budget.limit:,} tokens",
    ]
    if progress.totals.possibly_billed:
        lines.append(f"- Possibly billed without a reply: {progress.totals.possibly_billed:,} tokens at most")
    lines += [f"- Step {step.id} ended partial: {step.reason}" for step in progress.steps if step.state == "partial"]
    lines += _compactions(progress)
    lines += [f"- {_approval(approval)}" for approval in progress.approvals]
    lines += [f"- `{refusal.signal}` without effect: {refusal.reason}" for refusal in progress.refusals]
    lines += [f"- {note}" for note in progress.notes]
    return "\n".join(lines)


def _compactions(progress: TaskProgress) -> list[str]:
    made = [item for item in progress.compactions if item.status.made_room]
    if not made:
        return []
    hidden = sum(item.tokens_before - item.tokens_after for item in made)
    passages = sum(item.passages for item in made)
    redactions = sum(item.redactions for item in made)
    return [
        f"- Compactions: {len(made)}, {hidden:,} tokens compressed away, {passages} passages kept in memory, "
        f"{redactions} private values replaced"
    ]


def _approval(approval: Approval) -> str:
    asked = f"{approval.agent} asked for {approval.asked_tokens:,} tokens"
    by = f" by {approval.by} (as they named themselves)" if approval.by else ""
    note = f": {approval.note}" if approval.note else ""
    match approval.decision:
        case "pending":
            return f"{asked}; nobody answered"
        case "approved":
            return f"{asked}; {approval.granted_tokens:,} approved{by}{note}"
        case "denied":
            return f"{asked}; denied{by}{note}"
