"""Measure the support check on AttributionBench: `python -m benchmarks.evidence --data FOLDER`.

`--fit` first fits the weights to the development data, and writes them into the package.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.evidence.examples import HOW_TO_GET, Example, load_examples
from benchmarks.evidence.fitting import fit_model
from benchmarks.evidence.rules import (
    Timed,
    apply_rule,
    check_example,
    choose_threshold,
    compute_macro_f1,
    judge_formerly,
    measure_overlap,
)
from waystation.documents.support_verdicts import SupportCheck, SupportVerdict

OVERLAP, FORMER, CHECK = "word overlap", "former rule", "support check"


def main() -> None:
    """Read the arguments, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=HOW_TO_GET)
    parser.add_argument("--fit", action="store_true", help="fit the weights to the development data, and stop")
    parser.add_argument("--parts", nargs="*", help="parts that are measured; all if none is named")
    chosen = parser.parse_args()
    parts = load_examples(chosen.data)
    development = parts["development"]
    if chosen.fit:
        fit_model(development)
        return
    overlaps = [measure_overlap(example) for example in development]
    threshold = choose_threshold(overlaps, [example.is_supported for example in development])
    rules: Mapping[str, Callable[[Example], bool]] = {
        OVERLAP: lambda example: measure_overlap(example) >= threshold,
        FORMER: judge_formerly,
    }
    check_example(development[0])  # loads modules, which is no part of a check
    for part, examples in parts.items():
        if not chosen.parts or part in chosen.parts:
            results = {name: apply_rule(rule, examples) for name, rule in rules.items()}
            checks = apply_rule(check_example, examples)
            answers = [check.is_probably_supported for check in checks.answers]
            _print_part(part, examples, {**results, CHECK: Timed(answers, checks.seconds)})
            _print_verdicts(checks.answers, examples)


def _print_part(part: str, examples: Sequence[Example], results: Mapping[str, Timed[bool]]) -> None:
    sources = sorted({example.source for example in examples})
    labels = [example.is_supported for example in examples]
    print(f"\n{part}: {len(examples):,} claims\n")
    print("| rule | macro-F1 |" + "".join(f" {source} |" for source in sources) +
          " unsupported that pass | supported that fail | ms a sentence | × overlap |")  # fmt: skip
    print("|---|" + "---:|" * (len(sources) + 5))
    plain = median(results[OVERLAP].seconds)
    for name, result in results.items():
        figures = [_share_f1(result.answers, examples, {source}) for source in sources]
        passing = _mean([answer for answer, label in zip(result.answers, labels, strict=True) if not label])
        failing = _mean([not answer for answer, label in zip(result.answers, labels, strict=True) if label])
        took = median(result.seconds)
        print(f"| {name} | **{_share_f1(result.answers, examples, {*sources}):.3f}** |"
              + "".join(f" {figure:.3f} |" for figure in figures)
              + f" {passing:.0%} | {failing:.0%} | {took * 1000:.2f} | {took / plain:.1f} |")  # fmt: skip


def _share_f1(answers: Sequence[bool], examples: Sequence[Example], sources: set[str]) -> float:
    chosen = [pair for pair in zip(answers, examples, strict=True) if pair[1].source in sources]
    return compute_macro_f1([answer for answer, _ in chosen], [example.is_supported for _, example in chosen])


def _print_verdicts(checks: Sequence[SupportCheck], examples: Sequence[Example]) -> None:
    print("\n| verdict | share | right |\n|---|---:|---:|")
    pairs = [*zip(checks, examples, strict=True)]
    for verdict in SupportVerdict:
        given = [example.is_supported for check, example in pairs if check.verdict is verdict]
        right = [label == (verdict is SupportVerdict.SUPPORTED) for label in given]
        told = "" if verdict is SupportVerdict.CANNOT_TELL else f"{_mean(right):.1%}"
        print(f"| {verdict.value.replace('_', ' ')} | {len(given) / len(examples):.0%} | {told} |")
    for kind in ("figure", "date", "name"):
        given = [not one.is_supported for check, one in pairs if any(detail.kind == kind for detail in check.missing)]
        print(f"| of them: {kind} is absent | {len(given) / len(examples):.0%} | {_mean(given):.1%} |")
    absent = [check.has_absent_details for check in checks]
    alarms = [one for one, example in zip(absent, examples, strict=True) if example.is_supported]
    found = [one for one, example in zip(absent, examples, strict=True) if not example.is_supported]
    print(f"\nCalled absent: {_mean(alarms):.1%} of supported claims, {_mean(found):.1%} of unsupported ones")


def _mean(answers: Sequence[bool]) -> float:
    return sum(answers) / len(answers) if answers else 0.0


if __name__ == "__main__":
    main()
