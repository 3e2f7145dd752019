"""Headings and sentences of the sections that code adds to a report.

Reports are read back for export, so what is written and what is read is named once, here.
"""

QUESTIONS = "## Questions that agents asked"
CRITERIA = "## Criteria"
SOURCES = "## Sources"
CITATIONS = "## Citations"
FAILED_CITATIONS = "## Failed citations"
CITED_SENTENCES = "## Cited sentences"
ACCOUNT = "## About this report"
NOT_USED = "## Not used"
NOT_IN_MEMORY = "## Not all in memory"
DOCUMENT_VERSIONS = "## Appendix: document versions"
DATED, RETRIEVED, FILE = "dated", "retrieved", "file"
"""Before the day of a cited document, and before the day on which a page was fetched."""
DIGEST_DIGITS = 16
"""Digits of the SHA-256 that the appendix shows."""
CHECKED_BY_CODE = "Checked by code:"
COMPARED_BY_CODE = "Code compared the figures, dates, names and wording of "
NOT_JUDGED = "Whether the report answers the question was not judged."


def extract_brief_report(report: str) -> str:
    """Return the report with its sources and the check of its citations, without the account and the appendix."""
    return report.partition(f"\n\n{ACCOUNT}\n")[0].rstrip() + "\n"
