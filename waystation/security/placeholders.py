"""Placeholders: the same value of the same type has the same placeholder within a tenant, and another one elsewhere."""

import hashlib
import hmac
import re
from types import MappingProxyType

from waystation.kernel.patterns import compile_bounded
from waystation.privacy.policy import NAME_TYPES
from waystation.security.normalization import normalize_characters, strip_invisible_characters

SECRET = "SECRET"
"""The type of credentials: what a placeholder of this type stands for is kept nowhere."""

SHORT_TYPES = MappingProxyType(
    {
        "PERSON": "PERSON",
        "LOCATION": "LOCATION",
        "EMAIL_ADDRESS": "EMAIL",
        "PHONE_NUMBER": "PHONE",
        "CREDIT_CARD": "CARD",
        "IBAN_CODE": "IBAN",
        "US_SSN": "SSN",
        "PASSPORT": "PASSPORT",
        "DE_PASSPORT": "PASSPORT",
        "ES_PASSPORT": "PASSPORT",
        "IT_PASSPORT": "PASSPORT",
        "BANK_ACCOUNT": "ACCOUNT",
        "DRIVER_LICENSE": "LICENCE",
        "UK_DRIVING_LICENCE": "LICENCE",
        "CRYPTO": "WALLET",
        "IP_ADDRESS": "IP",
        "MAC_ADDRESS": "MAC",
        "SECRET": "SECRET",
    }
)
"""Types as recognisers name them, with their names in a placeholder."""

_HEX_DIGITS = 12
_VERBATIM = frozenset({"SECRET", "WALLET"})
_WORDS = frozenset({"PERSON", "LOCATION", "EMAIL", "IP"})
ENCODED_AT = r"(?:\\{1,2}(?:u0040|x40)|&(?:amp;)?(?:#0{0,4}64|#x0{0,4}40|commat);)"
ENCODED_DOT = r"(?:\\{1,2}(?:u002e|x2e)|&(?:amp;)?(?:#0{0,4}46|#x0{0,4}2e|period);)"
"""A dot as JSON, programs and HTML encode it."""
_AT, _DOT = (
    compile_bounded(rf"\s?[\[(]\s?{word}\s?[\])]\s?|{encoded}", re.IGNORECASE)
    for word, encoded in (("(?:at|@)", ENCODED_AT), (r"(?:dot|\.)", ENCODED_DOT))
)
_JOINTS = compile_bounded(r"%20|[_~+,/]")
"""File names join the words of a name: it is the same name."""
_NO_LETTER_OR_DIGIT = compile_bounded(r"[\W_]+")


def build_placeholder(key: bytes, tenant: str, short_type: str, value: str) -> str:
    """Return `<PERSON_7f3a2c91d04e>`: the type and the first 48 bits of the fingerprint."""
    return f"<{short_type}_{compute_fingerprint(key, tenant, short_type, value)[:_HEX_DIGITS]}>"


def compute_fingerprint(key: bytes, tenant: str, short_type: str, value: str) -> str:
    """Return HMAC-SHA256 over tenant, type and the normalised value, in hexadecimal."""
    parts = "\x00".join((tenant, short_type, _normal(short_type, value)))
    return hmac.new(key, parts.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _normal(short_type: str, value: str) -> str:
    if short_type in _VERBATIM:
        value = strip_invisible_characters(value)
        return value.lower() if short_type == "WALLET" and value.startswith("0x") else value
    value = normalize_characters(value)
    if short_type == "EMAIL":
        value = normalize_email_address(value)
    if short_type in NAME_TYPES:
        value = _JOINTS.sub(" ", value)
    if short_type in _WORDS:
        return " ".join(value.casefold().split())
    return _NO_LETTER_OR_DIGIT.sub("", value).casefold()


def normalize_email_address(value: str) -> str:
    """Return an e-mail address with @ and dots, however it is written: `bob%40example.com`, `bob [at] example (dot)
    com`.
    """
    return _DOT.sub(".", _AT.sub("@", value.replace("%40", "@")))
