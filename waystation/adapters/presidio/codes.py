"""Short numbers that open something: of a card, a telephone, or a login."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hinted, Hit
from waystation.adapters.presidio.labels import lower
from waystation.patterns import proven

_IS = r"\\?[\"']?\s{0,2}(?:(?:is|was|lautet|ist|es|est|is:|was:)\s|[:=#]|是|は)?\s{0,2}[\"']?"
_NO_MORE = r"(?![\w]|[.,:/-]\d)"
_PATTERNS = (
    Hinted(
        ("cvv", "cvc", "card security", "prüf"),
        proven(
            rf"\b(?:CVV2?|CVC2?|card security code|Kartenprüfnummer|Prüfziffer){_IS}(?P<code>\d{{3,4}}){_NO_MORE}", re.I
        ),
    ),
    Hinted(
        ("pin",),
        proven(
            r"(?<![\w-])pin(?:[ -]?(?:code|number|nummer))?\\?[\"']?"
            rf"(?:\s{{0,2}}[:=]\s{{0,2}}[\"']?|\s(?:is|was|lautet|ist|es|est)\s)(?P<code>\d{{4,8}}){_NO_MORE}",
            re.IGNORECASE,
        ),
    ),
    Hinted(("pin",), proven(rf"(?<![\w-])PIN (?P<code>\d{{4}}){_NO_MORE}(?! ?\d)")),
    Hinted(
        ("otp", "puk", "code", "códi", "codi", "time pass", "验证码", "驗證碼", "認証", "暗証", "인증"),
        proven(
            r"(?:\b(?:OTP|PUK|one[ -]time (?:code|pass(?:word|code))"
            r"|(?:verification|security|2FA|MFA|auth(?:entication)?|login) code"
            r"|Bestätigungscode|Sicherheitscode|código de (?:verificación|seguridad|verificação)"
            r"|code de (?:vérification|sécurité)"
            rf"|codice di verifica)|验证码|驗證碼|認証コード|暗証番号|인증번호){_IS}"
            rf"(?P<code>\d{{3}}[ -]\d{{3}}|\d{{4,8}}){_NO_MORE}",
            re.IGNORECASE,
        ),
    ),
)


def codes(text: str) -> Iterator[Hit]:
    """Every such number behind what it is called."""
    lowered = lower(text)
    for pattern in _PATTERNS:
        for match in pattern.matches(text, lowered):
            yield Hit("SECRET", *match.span("code"), 0.9)
