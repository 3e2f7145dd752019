"""What is said of a cited sentence: supported by its lines, not supported, or not decided, and what the lines lack."""

from enum import StrEnum
from typing import Literal

from waystation.kernel.value import Value

MissingKind = Literal["figure", "date", "name", "calculation", "negation", "modality", "wording"]


ABSENT_KINDS = frozenset({"figure", "date", "name"})
"""Kinds of details that a finished report states only if its cited lines do."""


class SupportVerdict(StrEnum):
    """Whether the cited lines support a sentence, as far as code can see."""

    SUPPORTED = "supported"
    NOT_SUPPORTED = "not_supported"
    CANNOT_TELL = "cannot_tell"


class MissingDetail(Value):
    """Something that a sentence says and its cited lines do not, or say differently."""

    kind: MissingKind
    text: str
    """As written in the sentence; empty if the sentence leaves out a word of the lines."""
    lines_say: str = ""
    """The words of the lines that it differs from; empty if they have nothing like it."""

    @property
    def is_absent(self) -> bool:
        """Whether it is a figure, date or name that the cited lines do not contain."""
        return self.kind in ABSENT_KINDS and not self.lines_say


class SupportCheck(Value):
    """The result for one sentence."""

    verdict: SupportVerdict
    missing: tuple[MissingDetail, ...] = ()
    score: float
    """Estimated probability, from 0 to 1, that the passages support the sentence, by its words alone."""

    @property
    def has_absent_details(self) -> bool:
        """Whether the sentence states a figure, date or name that the cited lines do not contain."""
        return self.verdict is SupportVerdict.NOT_SUPPORTED and any(one.is_absent for one in self.missing)

    @property
    def is_probably_supported(self) -> bool:
        """Whether the sentence is more likely supported than not, if there are only these two answers."""
        return self.verdict is SupportVerdict.SUPPORTED or (
            self.verdict is SupportVerdict.CANNOT_TELL and self.score >= 0.5
        )


def render_missing(check: SupportCheck, lines: str) -> str:
    """Render what is missing, such as `"12 %" is not in lines 40-44`; empty if nothing is named.

    Args:
        check: The result of the sentence.
        lines: What the sentence cites, such as `lines 40-44`.
    """
    return "; ".join(dict.fromkeys(_render_detail(detail, lines) for detail in check.missing))


def _render_detail(detail: MissingDetail, lines: str) -> str:
    if not detail.text:
        return f'the sentence leaves out "{detail.lines_say}", which is in {lines}'
    if detail.kind == "calculation":
        return f'"{detail.text}" is not in {lines}, but may be computed from {detail.lines_say}'
    if detail.lines_say:
        return f'the sentence says "{detail.text}", but the cited text says "{detail.lines_say}" ({lines})'
    return f'"{detail.text}" is not in {lines}'
