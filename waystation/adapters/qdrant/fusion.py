"""Joins the hits of BM25 and of dense search into one ranking."""

from collections.abc import Mapping

DENSE_WEIGHT = 0.5
"""Against 1 for BM25. On ten long conversations with known evidence this found more than either alone."""


def fused(bm25: Mapping[str, float], dense: Mapping[str, float]) -> dict[str, float]:
    """Ids with their scores from 0 to 1, best first: the weighted mean of both sides' scores, each scaled to 0..1.

    An id that one side did not find counts 0 there. Without dense hits the BM25 ranking stays as it is.
    """
    weight = DENSE_WEIGHT if dense else 0.0
    words, meaning = _scaled(bm25), _scaled(dense)
    scores = {
        id_: (words.get(id_, 0.0) + weight * meaning.get(id_, 0.0)) / (1.0 + weight)
        for id_ in dict.fromkeys((*words, *meaning))
    }
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))


def _scaled(scores: Mapping[str, float]) -> dict[str, float]:
    if not scores:
        return {}
    lowest, highest = min(scores.values()), max(scores.values())
    if highest == lowest:
        return dict.fromkeys(scores, 1.0)
    return {id_: (score - lowest) / (highest - lowest) for id_, score in scores.items()}
