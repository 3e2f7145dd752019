"""Estimates from features how probable it is that passages support a sentence: a logistic regression."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from waystation.documents.support_features import SupportFeatures
from waystation.documents.support_weights import WEIGHTS

_LIMIT = 3.0
"""Standard deviations beyond which a feature counts no more, so that no passage is far outside of what was measured."""


class SupportModel(NamedTuple):
    """A logistic regression over standardised features, and the two thresholds between its three verdicts."""

    means: Sequence[float]
    """For each feature, its mean in the development data."""
    deviations: Sequence[float]
    """For each feature, its standard deviation there."""
    weights: Sequence[float]
    """The intercept, and for each feature what one standard deviation adds to the logarithm of the odds."""
    supported_from: float
    """Score from which a sentence is supported."""
    not_supported_below: float
    """Score below which it is not."""

    def estimate(self, features: SupportFeatures) -> float:
        """Return the estimated probability of support."""
        standardized = standardize_features(features, self.means, self.deviations)
        odds = sum(weight * value for weight, value in zip(self.weights, (1.0, *standardized), strict=True))
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def standardize_features(
    features: Sequence[float], means: Sequence[float], deviations: Sequence[float]
) -> tuple[float, ...]:
    """Return each feature as standard deviations from its mean, within limits."""
    return tuple(
        max(-_LIMIT, min(_LIMIT, (value - mean) / deviation))
        for value, mean, deviation in zip(features, means, deviations, strict=True)
    )


SUPPORT_MODEL = SupportModel(*WEIGHTS)
"""The model that is fitted to the development data."""
