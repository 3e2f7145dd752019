"""The cited sentences of a stored report with their verdicts, as its marks and its last sections say."""

from waystation.documents.citations import iter_cited_claims, parse_sentence_mark
from waystation.documents.cited_sentences import CitedSentence
from waystation.documents.support_verdicts import SupportVerdict
from waystation.reports.blocks import StoredReport, parse_stored_report
from waystation.reports.changes import CHANGES_HEADING
from waystation.reports.report import QUESTION_LABEL


def is_above_answer(report: str, position: int) -> bool:
    """Whether this position of a report is in the question, or in the changes since an earlier report."""
    begin = report.rfind("\n\n", 0, position)
    return report.startswith((QUESTION_LABEL, f"> {CHANGES_HEADING}"), begin + 2 if begin >= 0 else 0)


def extract_cited_sentences(markdown: str) -> tuple[CitedSentence, ...]:
    """Return the sentences of a stored report that have citations, in order; empty if they were not checked."""
    stored = parse_stored_report(markdown)
    found: list[CitedSentence] = []
    for claim, start, end in iter_cited_claims(stored.body):
        if len(found) == stored.sentences:
            # What follows was added by code.
            break
        if not is_above_answer(stored.body, start):
            number = parse_sentence_mark(stored.body[start:end])
            citations = tuple(dict.fromkeys(map(str, claim.citations)))
            verdict, missing = _read_verdict(stored, citations, number)
            found.append(CitedSentence(text=claim.text, citations=citations, verdict=verdict, missing=missing))
    return tuple(found)


def _read_verdict(stored: StoredReport, citations: tuple[str, ...], number: int | None) -> tuple[SupportVerdict, str]:
    if number is not None:
        verdict = SupportVerdict.NOT_SUPPORTED if number else SupportVerdict.CANNOT_TELL
        return verdict, stored.remarks.get(number, "")
    faults = [f"{one}: {stored.faults[one]}" for one in citations if one in stored.faults]
    if len(faults) == len(citations):
        return SupportVerdict.NOT_SUPPORTED, "; ".join(faults)
    return SupportVerdict.SUPPORTED, ""
