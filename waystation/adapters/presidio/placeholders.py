"""Placeholders: the same value of the same type has the same one within a tenant, and another one elsewhere."""

import hashlib
import hmac
import re
from types import MappingProxyType

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
        "BANK_ACCOUNT": "ACCOUNT",
        "DRIVER_LICENSE": "LICENCE",
        "CRYPTO": "WALLET",
        "IP_ADDRESS": "IP",
        "MAC_ADDRESS": "MAC",
        "SECRET": "SECRET",
    }
)
"""Types as recognisers name them, and as they stand in a placeholder."""

PLACEHOLDER = re.compile(r"<[A-Z]{2,12}_[0-9a-f]{12}>")
_HEX_DIGITS = 12
_VERBATIM = frozenset({"SECRET", "WALLET"})
_WORDS = frozenset({"PERSON", "LOCATION", "EMAIL", "IP"})
_NO_LETTER_OR_DIGIT = re.compile(r"[\W_]+")


def placeholder(key: bytes, tenant: str, short_type: str, value: str) -> str:
    """`<PERSON_7f3a2c91d04e>`: 48 bits of HMAC-SHA256 over tenant, type and the value in its normal form."""
    parts = "\x00".join((tenant, short_type, _normal(short_type, value)))
    digest = hmac.new(key, parts.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
    return f"<{short_type}_{digest[:_HEX_DIGITS]}>"


def _normal(short_type: str, value: str) -> str:
    if short_type in _VERBATIM:
        return value
    if short_type in _WORDS:
        return " ".join(value.casefold().split())
    return _NO_LETTER_OR_DIGIT.sub("", value).casefold()
