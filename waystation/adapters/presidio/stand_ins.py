"""What stands where a secret could stand and is none: placeholders of manuals, types, states, and code."""

import re

from waystation.adapters.presidio.vocabulary import NO_SECRETS
from waystation.patterns import proven

_STAND_IN = proven(
    r"\A(?:[*.x•…#_=?-]+|[$%{<\[@].*|(?:your|my|the|some|example|dummy|test|fake|sample|change|replace|insert)"
    r"(?:[a-z]*|[_ .-][\w .-]*)"
    r"|\w+[_-](?:key|token|secret|password|passwd|pwd|pass|id|here|value|string|name)"
    r"|(?-i:[a-z]\w*(?:Key|Token|Secret|Password|Pwd|Id))"
    r"|[\w-]{0,8}\.{3}.*|process\.env\b.*|os\.(?:environ|getenv)\b.*)\Z",
    re.IGNORECASE,
)
_FIVE_CONSONANTS = r"(?:[b-df-hj-np-tv-xz]{5}|[B-DF-HJ-NP-TV-XZ]{5})"
UNLIKE_A_WORD = rf"(?=[A-Za-z]*{_FIVE_CONSONANTS})(?:[a-z]{{10,}}|[A-Z]{{10,}})"
"""Letters alone as a generator draws them, and hardly any language."""
_UNLIKE_A_WORD = proven(rf"\A{UNLIKE_A_WORD}\Z")
_TYPE_NAME = proven(r"\A[A-Z][a-z]+(?:[A-Z][a-z]+)*(?:Str|String|Field|Type|Text|Bytes|Input|Model|Schema|Callback)\Z")
_DOTTED = proven(r"\A(?!(?:\D*\d){3})[A-Za-z_]\w*+(?:(?:\.|::|->)[A-Za-z_]\w*+)++\.?\Z")
_NAME = proven(r"\A[A-Za-z_][\w.]*\Z")
_CALL = proven(r"[\w\]]\(")
_EXPRESSION_GOES_ON = proven(r"[(\[{]|\s?(?:==|!=|\?\?|\|\||&&|\+)|\.\w|\s=\s")


def is_stand_in(value: str) -> bool:
    """Whether a reader knows that this is no secret."""
    return value.lower() in NO_SECRETS or _STAND_IN.match(value) is not None or _TYPE_NAME.match(value) is not None


def is_unlike_a_word(value: str) -> bool:
    """Whether a value of letters alone is none that anybody would write in its place but a secret."""
    return _UNLIKE_A_WORD.match(value) is not None


def is_code(text: str, start: int, end: int) -> bool:
    """Whether this stretch is an expression, or begins one, that gives a value only when it is run."""
    value = text[start:end]
    if _DOTTED.match(value) or value[0] in ":=" or "[" in value:
        return True
    return _NAME.match(value) is not None and _EXPRESSION_GOES_ON.match(text, end) is not None


def in_code(text: str, start: int) -> bool:
    """Whether a call or a block that is open on this line holds what stands at `start`."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if line.count("{") > line.count("}"):
        return True
    closed = line.count(")")
    return line.count("(") > closed and len(_CALL.findall(line)) > closed
