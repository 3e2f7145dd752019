"""Renders evaluations as one HTML page of tables and SVG plots; nothing is loaded, everything is escaped."""

from collections.abc import Sequence
from html import escape

from waystation.kernel.text import format_count
from waystation.plugins.evaluation.scores import MEANS, MEASURES, Evaluation, Metric, MetricComparison, ScoredAnswer

_COLOURS = "#1f6f8b", "#c8553d"
_LEFT, _WIDTH, _ROW, _RADIUS = 190, 420, 18, 5
"""Pixels: width of the names, width of the scale from 0 to 1, height of a row, radius of a dot."""
_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}"
    "td.n{text-align:right}svg{max-width:100%;height:auto}.missed{color:#a33}"
)


def render_evaluation_page(found: Sequence[Evaluation], pairs: Sequence[MetricComparison]) -> str:
    """Render the page: means, a plot for each metric with a dot for each question, the effect of compactions, each
    answer.
    """
    parts = [
        f"<h1>{escape(found[0].set)}</h1>",
        _legend(found),
        _means(found),
        _pairs(pairs),
        *[_plot(measure, found) for measure in MEASURES if any(one.mean(measure) is not None for one in found)],
        _by_compactions(found),
        *[_answers(one) for one in found],
    ]
    head = f'<meta charset="utf-8"><title>{escape(found[0].set)}</title><style>{_STYLE}</style>'
    body = "\n".join(filter(None, parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _number(score: float | None) -> str:
    return "–" if score is None else f"{score:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table; cells are HTML already."""
    first = "".join(f"<th>{escape(name)}</th>" for name in head)
    rest = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{first}</tr>\n{rest}</table>"


def _legend(found: Sequence[Evaluation]) -> str:
    told = [
        f'<li><span style="color:{colour}">●</span> {escape(one.label)}: model {escape(one.model)}, version '
        f"{escape(one.version)}, {format_count(len(one.answers), 'question')}, {len(one.failed)} failed</li>"
        for one, colour in zip(found, _COLOURS, strict=False)
    ]
    return f"<ul>{''.join(told)}</ul>"


def _means(found: Sequence[Evaluation]) -> str:
    rows = [[escape(MEANS[measure]), *[_number(one.mean(measure)) for one in found]] for measure in MEASURES]
    rows.append(["tokens (total)", *[f"{sum(answer.tokens for answer in one.answers):,}" for one in found]])
    rows.append(["compactions (total)", *[f"{sum(answer.compactions for answer in one.answers):,}" for one in found]])
    rows.append(["pauses (total)", *[f"{sum(answer.pauses for answer in one.answers):,}" for one in found]])
    return _table(["mean", *[one.label for one in found]], rows)


def _pairs(pairs: Sequence[MetricComparison]) -> str:
    rows = [
        [pair.measure, _number(pair.first), _number(pair.second), str(pair.better), str(pair.worse), f"{pair.p:.3f}"]
        for pair in pairs
    ]
    table = _table(["measure", "first", "second", "questions better", "questions worse", "p"], rows)
    said = (
        "<p>Each question is compared between the two evaluations (exact two-sided sign test; questions with equal "
        "scores are left out).</p>"
    )
    return f"<h2>Compared</h2>{said}{table}" if pairs else ""


def _x(share: float) -> float:
    return round(_LEFT + share * _WIDTH, 1)


def _svg(height: int, drawn: Sequence[str]) -> str:
    size = f'width="{_LEFT + _WIDTH + 30}" height="{height}"'
    view = f'viewBox="0 0 {_LEFT + _WIDTH + 30} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size} {view}>{"".join(drawn)}</svg>'


def _dot(x: float, y: float, colour: str, title: str) -> str:
    circle = f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" fill="{colour}" fill-opacity="0.7">'
    return f"{circle}<title>{escape(title)}</title></circle>"


def _words(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="12" text-anchor="{anchor}">{escape(text)}</text>'


def _axis(top: int, bottom: int) -> list[str]:
    lines = [
        f'<line x1="{_x(share)}" y1="{top}" x2="{_x(share)}" y2="{bottom}" stroke="#ddd"/>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    return [*lines, *[_words(_x(share), bottom + 14, str(share), "middle") for share in (0, 0.5, 1)]]


def _plot(measure: Metric, found: Sequence[Evaluation]) -> str:
    """Plot a row for each question, with a dot for each configuration."""
    rows = {answer.id: number for number, answer in enumerate(found[0].answers)}
    bottom = len(rows) * _ROW
    drawn = _axis(0, bottom)
    drawn += [_words(_LEFT - 10, row * _ROW + 13, name, "end") for name, row in rows.items()]
    for one, colour in zip(found, _COLOURS, strict=False):
        for answer in one.answers:
            if (score := answer.scores.get(measure)) is not None and answer.id in rows:
                title = f"{answer.id}, {one.label}: {score:.2f}"
                drawn.append(_dot(_x(score), rows[answer.id] * _ROW + _ROW / 2, colour, title))
    return f"<h2>{escape(measure)}: {escape(MEANS[measure])}</h2>{_svg(bottom + 20, drawn)}"


def _by_compactions(found: Sequence[Evaluation]) -> str:
    """Plot facts found by the number of compactions of a task's contexts."""
    counts = sorted({answer.compactions for one in found for answer in one.answers})
    bottom = len(counts) * _ROW
    drawn = _axis(0, bottom)
    for row, count in enumerate(counts):
        drawn.append(_words(_LEFT - 10, row * _ROW + 13, format_count(count, "compaction"), "end"))
        for one, colour in zip(found, _COLOURS, strict=False):
            shares = [_facts(answer) for answer in one.answers if answer.compactions == count]
            known = [share for share in shares if share is not None]
            if known:
                mean = sum(known) / len(known)
                title = f"{one.label}: on average {mean:.2f} of the facts, in {format_count(len(known), 'report')}"
                drawn.append(_dot(_x(mean), row * _ROW + _ROW / 2, colour, title))
    return f"<h2>Facts found, by number of compactions</h2>{_svg(bottom + 20, drawn)}"


def _facts(answer: ScoredAnswer) -> float | None:
    return answer.scores.facts


def _answers(one: Evaluation) -> str:
    rows = [
        [
            escape(answer.id),
            *[_number(answer.scores.get(measure)) for measure in MEASURES],
            f"{answer.tokens:,}",
            f"{answer.seconds:,.0f}",
            str(answer.compactions),
            str(answer.pauses),
            f'<span class="missed">{escape("; ".join([*answer.scores.missed, *answer.scores.contradictions]))}</span>'
            + escape(answer.fault),
        ]
        for answer in one.answers
    ]
    head = ["question", *MEASURES, "tokens", "seconds", "compactions", "pauses", "missed, or contradicted"]
    return f"<h2>{escape(one.label)}</h2>{_table(head, rows)}"
