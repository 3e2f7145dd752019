"""The report: what the agents wrote, and an account of how it came about, in Markdown."""

from collections.abc import Mapping, Sequence

from waystation.domain.amount import used_text
from waystation.domain.citations import Citation, CitedDocument, FailedCitation
from waystation.domain.delegation import parent_of
from waystation.domain.details import cost_text, privacy_text, work_text
from waystation.domain.documents import LeftOut
from waystation.domain.foreign_text import one_line
from waystation.domain.procedures import GivenProcedure
from waystation.domain.remembering import Beyond
from waystation.domain.request_text import answer_text, counted
from waystation.domain.task import StepProgress, TaskPhase, TaskProgress
from waystation.domain.value import Value
from waystation.domain.work import Analysis, Finding, Findings, ReportDraft

OFFLINE_WARNING = (
    "> **No LLM wrote this.** The built-in offline model searched the documents, copied the best passages word for "
    "word and put them in order. It understands nothing; read it as an index, not as an answer."
)

MOST_EARLY = 4
"""Agents that are named on top; all of them stand in the account."""
MOST_LEFT_OUT = 50
"""Lines of the list of what was not used."""


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
    left_out: tuple[LeftOut, ...] = ()
    procedures: tuple[GivenProcedure, ...] = ()
    """What agents were told to follow."""

    @property
    def nothing(self) -> bool:
        """Whether no agent has noted, found or written anything."""
        found = any(step.findings.findings for step in self.findings)
        return not found and self.analysis is None and self.draft == ReportDraft()


class Apparatus(Value):
    """What code adds to what the agents wrote: the check of their citations, and parts in Markdown."""

    checked: int = 0
    failed: tuple[FailedCitation, ...] = ()
    sources: str = ""
    not_used: str = ""
    oversight: str = ""
    """Lines of the account: revisions, reviews, and what was not mended."""
    procedures: str = ""
    """Lines of the account: what agents were told to follow."""


def written_part(parts: ReportParts) -> str:
    """What the agents wrote; where the writing was not finished, the findings stand in for it."""
    draft = parts.draft
    whole = bool(draft.title)
    lines = [f"# {draft.title or parts.progress.title or 'Report'}"]
    if not parts.progress.phase.over:
        lines.append(_why_draft(parts.progress))
    elif not whole:
        lines.append(f"> **Partial.** {_why_partial(parts.progress)}")
    elif early := [f"{step.id} ({step.reason})" for step in parts.progress.steps if step.state == "partial"]:
        lines.append(f"> **Ended early:** {_some(early)}. What they had by then is in this report; the rest is not.")
    lines += [f"**Question.** {parts.question}", draft.summary]
    lines += [f"## {section.heading}\n\n{section.markdown}" for section in draft.sections]
    if not whole:
        lines += _stand_in(parts)
    return "\n\n".join(filter(None, lines))


def whole_report(parts: ReportParts, written: str, apparatus: Apparatus) -> str:
    """The report as it is stored: warning, written part, sources and their check, the account, what was not used."""
    pieces = [
        OFFLINE_WARNING if parts.offline else "",
        written,
        apparatus.sources,
        _citations(apparatus.checked, apparatus.failed),
        _account(parts.progress, apparatus),
        apparatus.not_used,
    ]
    return "\n\n".join(filter(None, pieces)) + "\n"


def sources_section(holding: Sequence[Citation], documents: Mapping[str, CitedDocument]) -> str:
    """Each cited document once, in the order of first citation, with the places and lines cited; empty without any."""
    cited: dict[str, set[tuple[int, int]]] = {}
    for citation in holding:
        cited.setdefault(citation.document, set()).add((citation.first_line, citation.last_line))
    lines = [f"- {name}: {_cited(documents[name], sorted(ranges))}" for name, ranges in cited.items()]
    return "\n".join(["## Sources", "", *lines]) if lines else ""


def not_used_section(left_out: Sequence[LeftOut]) -> str:
    """What was given and is in no document, the first 50 by name with reasons; empty without any."""
    if not left_out:
        return ""
    lines = [" ".join(f"- {item.name}: {item.reason}".split()) for item in left_out[:MOST_LEFT_OUT]]
    if len(left_out) > MOST_LEFT_OUT:
        lines.append(f"- and {len(left_out) - MOST_LEFT_OUT:,} more")
    return "\n".join(["## Not used", "", "Given with the documents, and not read:", "", *lines])


def not_remembered_section(left_out: Beyond | None) -> str:
    """Which documents memory does not get, or not all of, the first 50 by name; empty where it gets all."""
    if left_out is None:
        return ""
    lines = [*left_out.lines[:MOST_LEFT_OUT]]
    if len(left_out.lines) > MOST_LEFT_OUT:
        lines.append(f"- and {len(left_out.lines) - MOST_LEFT_OUT:,} more")
    said = (
        f"This task's agents could read all of its documents. Later tasks recall {left_out.most:,} of their "
        f"{left_out.all_characters:,} characters (WAYSTATION_REMEMBERED_CHARACTERS), and nothing of:"
    )
    return "\n".join(["## Not all in memory", "", said, "", *lines])


def procedure_lines(names: Sequence[str], digests: Sequence[str]) -> str:
    """Lines of the account: what agents were told to follow, by name and SHA-256 of the text; empty without any."""
    return "\n".join(
        f"- Followed: the procedure {one_line(name)}, sha256 `{digest}`"
        for name, digest in zip(names, digests, strict=True)
    )


def _cited(document: CitedDocument, ranges: Sequence[tuple[int, int]]) -> str:
    by_place: dict[str, list[tuple[int, int]]] = {}
    for first, last in ranges:
        begin, end = document.place(first), document.place(last)
        place = begin or "" if begin == end else f"{begin or 'beginning'} to {end}"
        by_place.setdefault(place, []).append((first, last))
    return ", ".join(f"{place} ({_numbers(own)})" if place else _numbers(own) for place, own in by_place.items())


def _numbers(ranges: Sequence[tuple[int, int]]) -> str:
    one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    numbers = ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in ranges)
    return f"line {numbers}" if one else f"lines {numbers}"


def _why_partial(progress: TaskProgress) -> str:
    reasons = [f"{step.id}: {step.reason}" for step in _of_the_plan(progress) if step.reason]
    if progress.phase is TaskPhase.CANCELLED:
        reasons.insert(0, "the task was cancelled")
    why = "; ".join(reasons) or "the writing step did not run"
    return f"This report was not finished ({why}). What was found follows."


def _some(agents: Sequence[str]) -> str:
    more = len(agents) - MOST_EARLY
    return "; ".join([*agents[:MOST_EARLY], *([f"and {more} more, named at the end"] if more > 0 else [])])


def _of_the_plan(progress: TaskProgress) -> list[StepProgress]:
    return [step for step in progress.steps if parent_of(step.id) is None]


def _why_draft(progress: TaskProgress) -> str:
    stands = "not over"
    if steps := _of_the_plan(progress):
        finished = sum(step.state in {"done", "partial"} for step in steps)
        stands = f"{progress.phase}, with {finished} of {counted(len(steps), 'step')} finished"
    return f"> **Draft.** The task is {stands}. If it ended now, it would deliver this."


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


def _account(progress: TaskProgress, apparatus: Apparatus) -> str:
    usage = progress.totals.usage
    lines = [
        "## How this report came about",
        "",
        f"- Task `{progress.task_id}`, model `{progress.model}`, {progress.totals.turns} model turns"
        + (f" in {work_text(progress)[0]}" if progress.legs else ""),
        f"- Tokens: {usage.input:,} input, {usage.cache_write:,} cache write, {usage.cache_read:,} cache read, "
        f"{usage.output:,} output; cost: {cost_text(progress)}",
        f"- Budget: {used_text(progress.budget.spent, progress.budget.limit)}",
    ]
    if usage.searches:
        lines.append(f"- Searches of the web, by the provider: {usage.searches:,}")
    if privacy := privacy_text(progress):
        lines.append(f"- {privacy}")
    if progress.totals.possibly_billed:
        lines.append(f"- Possibly billed without a reply: {progress.totals.possibly_billed:,} tokens at most")
    lines += [
        f"- {'Subagent' if parent_of(step.id) else 'Step'} {step.id} ended partial: {step.reason}"
        for step in progress.steps
        if step.state == "partial"
    ]
    lines += filter(None, [apparatus.procedures, apparatus.oversight])
    lines += _compactions(progress)
    over = progress.phase.over
    lines += [f"- {answer_text(approval, over=over)}" for approval in progress.approvals]
    lines += [f"- {told.by or 'Somebody'} told its agents something while it ran" for told in progress.tellings]
    lines += [f"- Its documents changed while it ran: {update.text}" for update in progress.updates if update.kept]
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
