"""What a ledger takes in: what must be there whatever the summary says, and what the summary lost, as there is room."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest

from waystation.domain.compaction.identifiers import identifiers
from waystation.domain.compaction.ledger import ASKED, DECIDED, DEMANDED, UNDONE, line_tokens, newest_fitting, one_line
from waystation.domain.compaction.replaced import Replaced
from waystation.domain.compaction.summary import ledger_room, unframed
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.compaction.wording import has_words, words_of
from waystation.domain.value import Value

SHARE = 4
"""Decisions and requests may each have this part of the room of a ledger; identifiers have the rest."""
LONGEST_IDENTIFIER = 300
"""Characters: a longer one is no name for anything, and would leave no room for others."""


class Entries(Value):
    """Lines of a ledger, and what they are: kinds and counts, nothing of the conversation."""

    lines: tuple[str, ...]
    what: tuple[str, ...]


def always_there(replaced: Replaced) -> Entries:
    """The user's constraints and open work.

    Also where the summary has them word for word: in a later compaction only the ledger tells a demand of the user's
    from the summariser's prose.
    """
    demanded = tuple(f"{DEMANDED}{sentence}" for sentence in replaced.constraints)
    undone = tuple(f"{UNDONE}{one_line(item)}" for item in replaced.open_work)
    what = ((len(demanded), "constraints of the user"), (len(undone), "open items"))
    return Entries(lines=demanded + undone, what=tuple(f"{kind}: {count:,}" for count, kind in what if count))


def taken_in(body: str, replaced: Replaced) -> Entries:
    """Decisions that the summary lost, the user's requests, and identifiers that the summary lost."""
    room = ledger_room(replaced.room)
    written = words_of(body)
    undecided = [decision for decision in replaced.decisions if not has_words(written, decision)]
    decided, asked = (newest_fitting(texts, room // SHARE) for texts in (undecided, replaced.asked))
    sources = filter(None, [replaced.sources])
    lines = (*(f"{DECIDED}{text}" for text in decided), *(f"{ASKED}{text}" for text in asked), *sources)
    shown = "\n".join([body, *always_there(replaced).lines, *lines])
    lost = _lost(shown, replaced.text)
    kept = _kept(lost, room - sum(map(line_tokens, lines)))
    what = (
        ("lost decisions", len(decided), len(undecided)),
        ("requests of the user", len(asked), len(replaced.asked)),
        ("lost identifiers", sum(map(len, kept.values())), sum(map(len, lost.values()))),
    )
    return Entries(
        lines=(*lines, *(f"{kind}: {' | '.join(values)}" for kind, values in kept.items() if values)),
        what=tuple(f"{kind}: {count:,} of {found:,}" for kind, count, found in what if found),
    )


def _lost(shown: str, middle: str) -> dict[str, list[str]]:
    """The identifiers of the middle that are not shown, by kind, the most mentioned and the newest first."""
    there = identifiers(shown)
    return {kind: _most_mentioned(found, there[kind]) for kind, found in identifiers(unframed(middle)).items()}


def _most_mentioned(found: Counter[str], there: Counter[str]) -> list[str]:
    return [value for value, _ in found.most_common() if value not in there and len(value) <= LONGEST_IDENTIFIER]


def _kept(lost: Mapping[str, list[str]], room: int) -> dict[str, list[str]]:
    # The best of every kind in turn, so that a table full of figures does not crowd out the one path.
    in_turn = (value for value in chain.from_iterable(zip_longest(*lost.values())) if value is not None)
    chosen = set(_fitting(in_turn, room))
    return {kind: [value for value in values if value in chosen] for kind, values in lost.items()}


def _fitting(texts: Iterable[str], room: int) -> Iterator[str]:
    """The texts, in order, that fit the room (tokens) together with the marks between them."""
    for text in texts:
        room -= estimate_text(text) + 1
        if room < 0:
            return
        yield text
