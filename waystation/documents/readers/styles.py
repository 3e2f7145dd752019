"""Evaluates style sheets and style attributes as far as they change what a reader sees or what it means.

Supported selectors are elements, classes and ids, one within another. Rules with any other selector (states, siblings,
attributes) or under a condition (`@media`) are ignored, so that the result does not depend on a device.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bs4 import Tag

from waystation.kernel.patterns import compile_bounded

_COMPOUND = compile_bounded(r"(?:[a-z][\w-]*+|\*)?(?:[.#][\w-]++){0,10}+", re.IGNORECASE)
_SIMPLE = compile_bounded(r"[.#]?[\w*-]++")
_ZERO = compile_bounded(r"0(?:\.0{1,5})?(?:px|pt|em|rem|%|vh|vw)?")
_FAR_OFF = compile_bounded(
    r"-\d{3,9}(?:\.\d{1,5})?(?:px|pt|em|rem|%|vh|vw|ex|ch|cm|in|mm)|-\d{2,9}(?:\.\d{1,5})?(?:em|rem)"
)
_USED = frozenset({
    *("display", "visibility", "opacity", "font-size", "color", "mso-hide", "overflow", "overflow-y"),
    *("height", "max-height", "width", "max-width", "left", "top", "text-indent"),
    *("text-decoration", "text-decoration-line", "vertical-align", "list-style", "list-style-type"),
})  # fmt: skip
_SIZES = ("height", "max-height", "width", "max-width")
_MAX_RULES = 20_000
_MAX_ANCESTORS = 200


class ElementStyle(NamedTuple):
    """Style of an element itself; None: not set."""

    shown: bool | None = None
    """If False, nothing in it is visible."""
    visible: bool | None = None
    """If False, neither it nor its contents are visible, unless those override it."""
    sized: bool | None = None
    """If False, its text and its contents have zero size, unless those override it."""
    struck: bool | None = None
    height: str | None = None
    """`super`, `sub`, or on the line."""
    list_style: str | None = None


_NOTHING = ElementStyle()


class _Rule(NamedTuple):
    selector: Sequence[str]
    """Compound selectors, the outermost first."""
    weight: tuple[int, int, int, int]
    """Numbers of ids, classes and elements, then position."""
    said: Mapping[str, str]


class StyleSheet:
    """The rules of a page's style sheets, in order."""

    def __init__(self, sheets: Sequence[str]) -> None:
        self._by_key: dict[str, list[_Rule]] = {}
        self._looks: dict[int, tuple[Tag, ElementStyle]] = {}
        """By identity of their elements, which is stable as long as they are referenced here."""
        count = 0
        for selectors, said in (rule for sheet in sheets for rule in _rules(_without_comments(sheet))):
            for selector in selectors.split(","):
                compounds = selector.replace(">", " ").split()
                if count >= _MAX_RULES or not compounds or not all(map(_COMPOUND.fullmatch, compounds)):
                    continue
                count += 1
                self._by_key.setdefault(_key(compounds[-1]), []).append(
                    _Rule(compounds, (*_specificity(compounds), count), said)
                )

    def compute_style(self, tag: Tag) -> ElementStyle:
        """Compute the style of an element, the strongest rule last."""
        written = tag.get("style")
        if not self._by_key and not written:
            return _NOTHING
        if id(tag) not in self._looks:
            self._looks[id(tag)] = (tag, self._found(tag, str(written or "")))
        return self._looks[id(tag)][1]

    def _found(self, tag: Tag, written: str) -> ElementStyle:
        rules = sorted(self._matching(tag), key=lambda rule: rule.weight) if self._by_key else []
        said: dict[str, str] = {}
        for declared in (*(rule.said for rule in rules), _declared(written)):
            for name, value in declared.items():
                if not said.get(name, "").endswith("!important") or value.endswith("!important"):
                    said[name] = value
        if not said:
            return _NOTHING
        return _look({name: value.removesuffix("!important").strip() for name, value in said.items()})

    def _matching(self, tag: Tag) -> Iterator[_Rule]:
        classes = tag.get("class") or ()
        keys = (tag.name, "*", f"#{tag.get('id', '')}", *(f".{name}" for name in classes))
        for key in dict.fromkeys(keys):
            yield from (rule for rule in self._by_key.get(key, ()) if _matches(tag, rule.selector))


def _without_comments(sheet: str) -> str:
    first, *others = sheet.split("/*")
    return " ".join([first, *(other.partition("*/")[2] for other in others)])


def _rules(sheet: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield selectors with their declarations if any of those are used here; contents of @-rules are skipped."""
    at, depth = 0, 0
    while (begin := sheet.find("{", at)) >= 0:
        end = sheet.find("}", at)
        if 0 <= end < begin:
            depth, at = max(0, depth - 1), end + 1
            continue
        selectors = sheet[at:begin].rpartition(";")[2].strip()
        close = sheet.find("}", begin)
        inner = sheet.find("{", begin + 1)
        if selectors.startswith("@") and 0 <= inner < close:
            depth, at = depth + 1, begin + 1
            continue
        is_conditional = depth > 0 or selectors.startswith("@")
        declared = {} if is_conditional else _declared(sheet[begin + 1 : close if close >= 0 else len(sheet)])
        if declared:
            yield selectors, declared
        if close < 0:
            return
        at = close + 1


def _declared(text: str) -> dict[str, str]:
    said: dict[str, str] = {}
    for declaration in text.split(";"):
        name, colon, value = declaration.partition(":")
        name = name.strip().lower()
        if colon and name in _USED:
            said[name] = value.lower().replace("! important", "!important").strip()
    return said


def _key(compound: str) -> str:
    """Return a part that an element must have to match."""
    parts = _SIMPLE.findall(compound)
    return next((part for part in parts if part.startswith("#")), parts[-1])


def _specificity(compounds: Sequence[str]) -> tuple[int, int, int]:
    parts = [part for compound in compounds for part in _SIMPLE.findall(compound)]
    ids, classes = (sum(part.startswith(sign) for part in parts) for sign in "#.")
    return ids, classes, len(parts) - ids - classes - parts.count("*")


def _matches(tag: Tag, selector: Sequence[str]) -> bool:
    if not _is(tag, selector[-1]):
        return False
    left = len(selector) - 1
    at = tag.parent
    for _ in range(_MAX_ANCESTORS):
        if not left or at is None:
            break
        left -= _is(at, selector[left - 1])
        at = at.parent
    return not left


def _is(tag: Tag, compound: str) -> bool:
    classes = tag.get("class") or ()
    for part in _SIMPLE.findall(compound):
        if part.startswith("#"):
            fits = tag.get("id") == part[1:]
        elif part.startswith("."):
            fits = part[1:] in classes
        else:
            fits = part == "*" or part.lower() == tag.name
        if not fits:
            return False
    return True


def _look(said: Mapping[str, str]) -> ElementStyle:
    display, visibility = said.get("display", ""), said.get("visibility", "")
    decoration = said.get("text-decoration-line") or said.get("text-decoration") or ""
    style = (said.get("list-style-type") or said.get("list-style") or "").split()
    size = said.get("font-size", "")
    return ElementStyle(
        shown=False if _is_gone(said) else (True if display else None),
        visible=None if not visibility else visibility not in {"hidden", "collapse"},
        sized=None if not size else not _ZERO.fullmatch(size),
        struck=None if not decoration else "line-through" in decoration,
        height=said.get("vertical-align"),
        list_style=style[0] if style else None,
    )


def _is_gone(said: Mapping[str, str]) -> bool:
    clipped = "hidden" in said.get("overflow", said.get("overflow-y", ""))
    return (
        said.get("display") == "none"
        or said.get("mso-hide") == "all"
        or said.get("color") == "transparent"
        or bool(_ZERO.fullmatch(said.get("opacity", "")))
        or (clipped and any(_ZERO.fullmatch(said.get(name, "")) for name in _SIZES))
        or any(_FAR_OFF.fullmatch(said.get(name, "")) for name in ("left", "top", "text-indent"))
    )
