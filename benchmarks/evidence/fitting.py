"""Fits the weights and thresholds of the support model to the development data, and writes them into the package."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.examples import Example
from benchmarks.evidence.rules import compute_macro_f1
from waystation.documents import support_weights
from waystation.documents.claim_support import measure_support
from waystation.documents.support_features import SupportFeatures
from waystation.documents.support_model import standardize_features

FOLDS = 10
PENALTY = 100.0
"""Weight of the squares of the weights (ridge). So large a one carries furthest from one source to another."""
MIN_PRECISION = 0.8
"""Share of right verdicts, by cross-validation, that each of the two thresholds must reach."""
_STEPS = 25
_Rows = NDArray[np.float64]


def fit_model(examples: Sequence[Example]) -> None:
    """Fit the model, print what cross-validation says, and write the weights."""
    features = [measure_support(one.claim, one.references, question=one.question) for one in examples]
    labels = np.array([one.is_supported for one in examples], dtype=np.float64)
    rows = np.array(features)
    means, deviations = rows.mean(axis=0).tolist(), np.maximum(rows.std(axis=0), 1e-6).tolist()
    standardized = np.array([standardize_features(one, means, deviations) for one in features])
    # Examples of one question share their references, so that a fold has whole questions.
    questions = {question: place for place, question in enumerate(dict.fromkeys(one.question for one in examples))}
    scores = _cross_validate(standardized, labels, [questions[one.question] % FOLDS for one in examples])
    ruled = np.array([one.missing_figures + one.missing_names > 0 for one in features])
    # The thresholds are for what no rule decides.
    supported_from, not_supported_below = _choose_thresholds(scores[~ruled], labels[~ruled])
    weights = fit_logistic_regression(standardized, labels).tolist()
    _print_scores(f"{FOLDS} folds", np.where(ruled, 0.0, scores), labels)
    sources = [one.source for one in examples]
    left_out = np.where(ruled, 0.0, _cross_validate(standardized, labels, sources))
    _print_scores("one source left out at a time", left_out, labels)
    for source in sorted({*sources}):
        chosen = np.array([one == source for one in sources])
        _print_scores(f"  {source}", left_out[chosen], labels[chosen])
    for feature, weight in zip(["intercept", *SupportFeatures._fields], weights, strict=True):
        print(f"  {feature:30} {weight:+.2f}")
    lines = [
        *(_write(values) for values in (means, deviations, weights)),
        str(supported_from),
        str(not_supported_below),
    ]
    path = Path(support_weights.__file__)
    text = path.read_text().partition('"""\n')[0] + '"""\n\nWEIGHTS = (\n'
    path.write_text(text + "".join(f"    {line},\n" for line in lines) + ")\n")


def _print_scores(name: str, scores: _Rows, labels: _Rows) -> None:
    print(f"macro-F1 {compute_macro_f1(scores >= 0.5, labels > 0):.3f} {name}")


def _write(values: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.4f}' for value in values)})"


def fit_logistic_regression(rows: _Rows, labels: _Rows) -> _Rows:
    """Return the intercept and the weights, by iteratively reweighted least squares with a ridge penalty."""
    with_intercept = np.hstack([np.ones((len(rows), 1)), rows])
    penalty = PENALTY * np.eye(with_intercept.shape[1])
    penalty[0, 0] = 0
    weights = np.zeros(with_intercept.shape[1])
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-with_intercept @ weights))
        gradient = with_intercept.T @ (labels - expected) - penalty @ weights
        curvature = (with_intercept.T * (expected * (1 - expected) + 1e-9)) @ with_intercept + penalty
        weights = weights + np.linalg.solve(curvature, gradient)
    return weights


def _cross_validate(rows: _Rows, labels: _Rows, folds: Sequence[object]) -> _Rows:
    """Return for each example its score by a model that was not fitted to its fold."""
    scores = np.zeros(len(rows))
    for fold in dict.fromkeys(folds):
        inside = np.array([one == fold for one in folds])
        weights = fit_logistic_regression(rows[~inside], labels[~inside])
        scores[inside] = 1 / (1 + np.exp(-(weights[0] + rows[inside] @ weights[1:])))
    return scores


def _choose_thresholds(scores: _Rows, labels: _Rows) -> tuple[float, float]:
    """Return the lowest score from which verdicts are right often enough, and the highest below which they are."""
    steps = [step / 100 for step in range(50, 100)]
    supported = next((one for one in steps if _is_precise(labels[scores >= one] > 0)), steps[-1])
    steps = [step / 100 for step in range(50, 0, -1)]
    unsupported = next((one for one in steps if _is_precise(labels[scores < one] == 0)), steps[-1])
    return supported, unsupported


def _is_precise(right: NDArray[np.bool_]) -> bool:
    return len(right) > 0 and float(right.mean()) >= MIN_PRECISION
