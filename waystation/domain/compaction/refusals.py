"""How models and services say that there is no summary, in the languages that we know."""

import re

from waystation.patterns import proven

SHORT_CHARACTERS = 300
"""A longer text that begins like a refusal may well be a summary of one."""
_REFUSAL = proven(
    r"(?:api )?error\s*[:\d]|traceback\b|\{\s*\"(?:type\"\s*:\s*\")?error\"|http [45]\d\d\b|overloaded\b"
    r"|[45]\d\d:? (?:overloaded|bad|unauthori[sz]ed|forbidden|not found|too many|internal|service|gateway)\b"
    r"|rate limit|internal server error|(?:the )?request timed out"
    # English
    r"|sorry\b|(?:i['’]m|i am) (?:(?:very |so )?sorry|unable|not able)|unfortunately,? i\b|as an ai\b"
    r"|i (?:cannot|can['’]t|can not|could not|couldn['’]t|won['’]t|will not)\b"
    # German
    r"|entschuldigung\b|(?:es )?tut mir leid|leider kann ich\b|ich kann\b[^.!?\n]{0,80}\bnicht\b"
    r"|ich bin nicht in der lage"
    # French
    r"|(?:je suis )?désolée?\b|je ne (?:peux|suis) pas\b|je regrette\b"
    # Spanish
    r"|lo siento\b|no puedo\b|disculp\w{1,3}\b|lamento\b"
    # Chinese
    r"|(?:很|非常)?抱歉|对不起|對不起|很遗憾|很遺憾|我(?:无法|無法|不能)"
    # Japanese
    r"|(?:大変)?申し訳|すみません|ごめんなさい|残念ながら",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether the text is the message of an error or a refusal."""
    return len(text) <= SHORT_CHARACTERS and _REFUSAL.match(text) is not None
