"""Secrets that code falls back on where the environment has none: `getenv("DB_PASSWORD", "value")`, `|| "value"`."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hit
from waystation.adapters.presidio.labels import ACCESS, KEY, PASSWORD, lower
from waystation.adapters.presidio.stand_ins import is_code, is_stand_in, is_unlike_a_word
from waystation.patterns import proven

_NAME = proven(
    rf"(?:(?P<password>{PASSWORD}|(?<=[_.-])(?:pass|pw)|(?<=[\"'.])pass)|{ACCESS}|{KEY})"
    r"(?:_?\d{1,3})?(?![\w.-]{1,60}[\"'])(?!\w)"
)
_REACH = 120
"""Characters before a name in which it is seen whether it is one of the environment's."""
_LOOKED_UP = proven(
    r"(?:env\w{0,20}|(?:env\w{0,20}|config\w{0,10}|settings?|prop(?:ertie)?s)\.(?:get\w{0,20}|fetch|value)|config|settings?"
    r"|default|property)\(\s?[\"'][\w.-]{0,60}\Z"
)
_OF_ENVIRONMENT = proven(r"(?:\benv(?:iron)?\b[\w.]{0,20}\(?\[?[\"']?|getenv\([\"'])[\w.-]{0,60}\Z")
_EXPANDED = proven(r"\$\{[\w.-]{0,60}\Z")
_QUOTED = r"(?P<quote>[\"'`])(?P<secret>(?:(?!(?P=quote))[^\n\\]){3,400}+)(?P=quote)"
_SECOND_ARGUMENT = proven(
    rf"[\"']\s{{0,20}},\s{{0,80}}(?:(?:default|fallback|default_value|defaultvalue)\s?[=:]\s?)?{_QUOTED}"
)
_OR_ELSE = proven(rf"[\"']?[\])]{{0,2}}\s{{0,40}}(?:\|\||\?\?|\?:|or\b)\s{{0,40}}{_QUOTED}")
_IN_BRACES = proven(r"(?::?[-=]|:(?![?+]|\d{1,4}(?::|\})))(?P<secret>[^\s{}$\"'`<>]{3,400})\}")
_FORMS = (
    (_LOOKED_UP, _SECOND_ARGUMENT),
    (_OF_ENVIRONMENT, _OR_ELSE),
    (_EXPANDED, _IN_BRACES),
)
"""What stands before the name, and what behind it."""
_CONTEXT = proven(r"env|config|setting|default|propert|props\.|\$\{")
"""In lower case: with one of them begins whatever looks something up."""
_DIGIT, _LETTER, _SPACE = proven(r"\d"), proven(r"[^\W\d_]"), proven(r"\s")
_PLACE = proven(r"\A(?:https?://|[~.]{0,2}/)|\A[\w-]+\.(?:json|pem|key|ya?ml|txt|crt)\Z", re.IGNORECASE)
_SHORTEST = {"password": 4, "key": 8}


def fallbacks(text: str) -> Iterator[Hit]:
    """Every value that stands in for a secret of the environment."""
    lowered = lower(text)
    names = (name for stretch in _stretches(lowered) for name in _NAME.finditer(lowered, *stretch))
    for name in names:
        before = lowered[max(0, name.start() - _REACH) : name.start()]
        for first, behind in _FORMS:
            value = behind.match(text, name.end())
            if value is not None and first.search(before) is not None:
                start, end = value.span("secret")
                if _counts(text, start, end, "password" if name["password"] else "key"):
                    yield Hit("SECRET", start, end, 0.9)


def _stretches(lowered: str) -> Iterator[tuple[int, int]]:
    """Where names may be looked up: to look for labels in all of the text once more would take its time."""
    start = end = 0
    for context in _CONTEXT.finditer(lowered):
        if context.end() > end:
            if end:
                yield start, end
            start = context.end()
        end = context.end() + _REACH
    if end:
        yield start, end


def _counts(text: str, start: int, end: int, kind: str) -> bool:
    value = text[start:end]
    if len(value) < _SHORTEST[kind] or _SPACE.search(value) or _PLACE.match(value):
        return False
    if is_stand_in(value) or is_code(text, start, end):
        return False
    mixed = _DIGIT.search(value) is not None and _LETTER.search(value) is not None
    return kind == "password" or mixed or is_unlike_a_word(value)
