"""The analysis agent: counts which documents say the same, and picks the findings nearest to the question."""

from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from waystation.adapters.offline.citing import TOPIC
from waystation.adapters.offline.findings import Entry, HandedIn, handed_in, next_page
from waystation.adapters.offline.language import concepts, weighed
from waystation.adapters.offline.quotes import strength
from waystation.adapters.offline.replies import Reply, call, finding
from waystation.adapters.offline.view import Need, View

MOST_GROUPS = 6
MOST_SINGLES = 5
MOST_CITATIONS = 5


def analysis(view: View) -> Reply:
    """The next turn of an analysis agent: read every needed step, then hand in."""
    if not view.must_hand_in:
        for need in view.contract.needs:
            if (page := next_page(view, need.step)) is not None:
                return Reply(text=f"I read the findings of {need.step}.", calls=(page,))
    results = [(need, handed_in(view, need.step)) for need in view.contract.needs]
    refused = sum(made.failed for made in view.calls("submit_analysis"))
    conclusions = [finding(text, cited) for need, result in results for text, cited in _conclusions(view, need, result)]
    if refused > 1 and not conclusions[: len(conclusions) >> refused]:
        return Reply(text="I could not hand in: every attempt was refused.")
    gaps: list[JsonValue] = [gap for need, result in results for gap in _gaps(need, result)]
    kept: list[JsonValue] = [*conclusions[: len(conclusions) >> refused]]
    return Reply(calls=(call("submit_analysis", conclusions=kept, contradictions=[], gaps=gaps),))


def _conclusions(view: View, need: Need, result: HandedIn) -> Iterator[tuple[str, Sequence[str]]]:
    """Counts first: what several documents say in the same words. Then the findings nearest to the question."""
    claims = [entry for entry in result.of("claim") if entry.places]
    documents = {place.document for entry in claims for place in entry.places}
    groups: dict[str, list[Entry]] = {}
    for entry in claims:
        groups.setdefault(" ".join((entry.quote or entry.text).casefold().split()), []).append(entry)
    shared = sorted((group for group in groups.values() if len(group) > 1), key=len, reverse=True)
    for group in shared[:MOST_GROUPS]:
        cited = list(dict.fromkeys(citation for entry in group for citation in entry.citations))
        saying = len({place.document for entry in group for place in entry.places})
        said = f'"{group[0].quote}"' if group[0].quote else group[0].text
        more = "" if len(cited) <= MOST_CITATIONS else f" (the first {MOST_CITATIONS} are cited)"
        yield (
            f"{need.title}{TOPIC}{saying} of {len(documents)} quoted documents say the same{more}: {said}",
            cited[:MOST_CITATIONS],
        )
    looked_for = concepts(need.title) or concepts(view.contract.question)
    singles = [group[0] for group in groups.values() if len(group) == 1]
    rare = weighed(looked_for, [entry.quote or entry.text for entry in singles])
    nearest = sorted(singles, key=lambda entry: -strength(entry.quote or entry.text, rare))
    for entry in nearest[:MOST_SINGLES]:
        yield f"{need.title}{TOPIC}{entry.text}", entry.citations


def _gaps(need: Need, result: HandedIn) -> Iterator[str]:
    yield from (f"{need.title}{TOPIC}{entry.text}" for entry in result.of("open"))
    if result.total is None or result.missing:
        yield f"{need.title}{TOPIC}not all findings of this step were in view when this was handed in."
