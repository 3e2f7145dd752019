"""What a report's account says of revisions of the plan and of reviews, and what was not mended."""

from collections.abc import Mapping, Sequence

from waystation.domain.oversight import PlanRevision, Review
from waystation.domain.report_check import Faults, listed


def oversight_lines(
    revisions: Sequence[PlanRevision], reasons: Mapping[int, str], reviews: Sequence[Review], faults: Faults
) -> str:
    """Lines of a Markdown list; empty where nothing was looked over. `reasons`: by version of the plan."""
    lines = [" ".join(filter(None, [f"- {one.text}", reasons.get(one.version or 0, "")])) for one in revisions]
    lines += [f"- {review.text}" for review in reviews]
    if faults.faults:
        lines.append("- The last review found, and nobody has mended:")
        lines += [f"  {line}" for line in listed(faults.faults).splitlines()]
    return "\n".join(lines)
