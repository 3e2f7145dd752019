"""Measures detections, wrong replacements and speed, compared with unmodified Presidio on the same sentences."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

import spacy

from benchmarks.budgets.tables import print_table
from benchmarks.privacy.corpus import Sentence, sentences
from benchmarks.privacy.finders import KEY, DefaultPresidioFinder, Finder, WaystationFinder
from benchmarks.privacy.score import Score, score_finder
from waystation.plugins.redaction.engines import iter_chunk_spans
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import ENGLISH_MODEL
from waystation.privacy.policy import TextDestination

COUNT, SEED = 2_800, 1
NAMES = ("PERSON", "LOCATION")
ROUNDS = 3
SPEED_CHARACTERS = 100_000
TURNS = 40
PROCESSES = (0, 2, 4)
SPEED_PLACES = (TextDestination.TOOL_RESULT, TextDestination.COMPRESSED)


def prove() -> None:
    """Print the tables. Raises AssertionError where something that must stay was replaced."""
    corpus = list(sentences(COUNT, SEED))
    ours, theirs = (
        _scored(finder, corpus) for finder in (WaystationFinder(TextDestination.COMPRESSED), DefaultPresidioFinder())
    )
    rows = [(type_, ours.there[type_], *_of(ours, type_), *_of(theirs, type_)) for type_ in sorted(ours.there)]
    head = ("type", "values", "recall", "precision", "F1", "Presidio's recall", "precision", "F1")
    print_table(f"Found in {COUNT:,} sentences, seed {SEED}", head, rows)
    kept = [(kind, f"{ours.kept[kind]:,}", ours.touched[kind], theirs.touched[kind]) for kind in sorted(ours.kept)]
    total = ("**all**", f"{ours.kept.total():,}", ours.wrongly_replaced, theirs.wrongly_replaced)
    print_table("Wrongly replaced", ("what must stay", "number", "ours", "unmodified Presidio"), [*kept, total])
    assert ours.wrongly_replaced == 0, ours.touched
    _speed([sentence.text for sentence in corpus])


def _scored(finder: Finder, corpus: Sequence[Sentence]) -> Score:
    return score_finder(corpus, finder.find([sentence.text for sentence in corpus]))


def _of(score: Score, type_: str) -> tuple[str, str, str]:
    return f"{score.recall(type_):.3f}", f"{score.precision(type_):.3f}", f"{score.f1(type_):.3f}"


def _speed(texts: Sequence[str]) -> None:
    """One long text, as documents and histories are. Presidio gets it in chunks: whole it takes many times as long."""
    whole = ["\n".join(texts)[:SPEED_CHARACTERS]]
    size, chunks = len(whole[0]), [whole[0][start:end] for start, end in iter_chunk_spans(whole[0])]
    patterns, everything = DefaultPresidioFinder(patterns_only=True), DefaultPresidioFinder()
    timed = {
        "secrets and identifiers": (
            _best(lambda: _ours(whole, TextDestination.TOOL_RESULT)),
            _best(lambda: patterns.find(chunks)),
        ),
        "names, too": (_best(lambda: _ours(whole, TextDestination.COMPRESSED)), _best(lambda: everything.find(chunks))),
    }
    rows = [
        (what, f"{size / ours:,.0f}", f"{size / theirs:,.0f}", f"{theirs / ours:.1f}")
        for what, (ours, theirs) in timed.items()
    ]
    print_table(
        f"Characters a second, {size:,} in one text", ("what", "ours", "unmodified Presidio", "times as fast"), rows
    )
    ceiling = _ner(chunks)
    names = timed["names, too"][0]
    print(
        f"\nThe language model alone, on the same chunks: {size / ceiling:,.0f}/s; ours is {ceiling / names:.0%} of it."
    )
    _by_processes(whole)
    told, seconds = asyncio.run(_growing(texts))
    print(f"\nA conversation that is redacted again after each of {TURNS} turns: {told / seconds:,.0f}/s.")


def _by_processes(whole: Sequence[str]) -> None:
    rows = list[tuple[str, ...]]()
    for processes in PROCESSES:
        speeds = [len(whole[0]) / _best(partial(_ours, whole, place, processes)) for place in SPEED_PLACES]
        rows.append((str(processes) if processes else "none", *(f"{speed:,.0f}" for speed in speeds)))
    head = ("child processes", "secrets and identifiers", "names, too")
    print_table(f"Characters a second by processes, on {os.cpu_count()} cores", head, rows)


def _best(work: Callable[[], float | object]) -> float:
    """Seconds; what loads before it starts may measure itself and say so."""
    seconds = list[float]()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        said = work()
        seconds.append(said if isinstance(said, float) else time.perf_counter() - start)
    return min(seconds)


def _ours(texts: Sequence[str], destination: TextDestination, processes: int = 0) -> float:
    async def timed() -> float:
        with closing(PresidioRedactor(KEY, processes=processes)) as redactor:
            await redactor.warm_up()
            start = time.perf_counter()
            await redactor.redact(texts, destination, "t")
            return time.perf_counter() - start

    return asyncio.run(timed())


def _ner(chunks: Sequence[str]) -> float:
    """Seconds of the language model, with no more of it than finds names."""
    unused = ["tagger", "parser", "attribute_ruler", "lemmatizer"]
    model = spacy.load(ENGLISH_MODEL, exclude=unused)
    return _best(lambda: list(model.pipe(chunks, batch_size=20)))


async def _growing(texts: Sequence[str]) -> tuple[int, float]:
    """Characters handed in and seconds, where every turn hands in all messages so far."""
    messages = ["\n".join(texts[turn * 10 : turn * 10 + 10]) for turn in range(TURNS)]
    with closing(PresidioRedactor(KEY)) as redactor:
        await redactor.warm_up()
        start = time.perf_counter()
        for turn in range(TURNS):
            await redactor.redact(messages[: turn + 1], TextDestination.COMPRESSED, "t")
        seconds = time.perf_counter() - start
    return sum(len(message) * (TURNS - turn) for turn, message in enumerate(messages)), seconds
