"""Telephone numbers with an extension, and ids in groups: no digit of them is left."""

import re
from collections.abc import Iterable

from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination

NUMBERS = (
    "617-555-0134",
    "(617) 555-0134",
    "(496)978-3969",
    "397.884.0519",
    "+1-212-736-5000",
    "+49 170 1234567",
    "020 7946 0958",
)
EXTENSIONS = (
    "x12",
    " x 12",
    "X12345",
    ";ext=12",
    " ext. 4567",
    ", ext 12",
    " extension 12",
    "#12",
    " Durchwahl 12",
)


async def left_of(redactor: PresidioRedactor, texts: Iterable[str]) -> dict[str, str]:
    """What is left of each text, its placeholders without what tells one from another."""
    given = [*texts]
    results = await redactor.redact(given, TextDestination.TOOL_RESULT, "tenant")
    left = [re.sub(r"<([A-Z]+)_[0-9a-f]{12}>", r"<\1>", one.text) for one in results]
    return dict(zip(given, left, strict=True))


async def test_an_extension_goes_with_its_number(redactor: PresidioRedactor) -> None:
    texts = [f"Reception {number}{extension} or write." for extension in EXTENSIONS for number in NUMBERS]
    assert await left_of(redactor, texts) == dict.fromkeys(texts, "Reception <PHONE> or write.")


IN_GROUPS = {
    "tel:+1-617-555-0134;ext=12": "tel:<PHONE>",
    "Phone 020 7946 0958x22": "Phone <PHONE>",
    "Support: 617-555-0134,12 or write": "Support: <PHONE> or write",
    "Call +1-212-736-5000,,12# now": "Call <PHONE> now",
    "Phone: 020 7946 0958,12": "Phone: <PHONE>",
    "Jane,617-555-0134,12\n": "Jane,<PHONE>,12\n",
    "617-555-0134,12,3\n": "<PHONE>,12,3\n",
    "driver's license D123-4567-8901": "driver's license <LICENCE>",
    "driver’s license: S530-4605-8005-60 expires": "driver’s license: <LICENCE> expires",
    "driving licence no. MORGA-753116-SM9IJ": "driving licence no. <LICENCE>",
    "Driving licence number 99 999 999 and": "Driving licence number <LICENCE> and",
    "driver's license renewal-2024 is due": "driver's license renewal-2024 is due",
    "passport 123-456-789": "passport <PASSPORT>",
    "account number: 1234-5678-9012": "account number: <ACCOUNT>",
}


async def test_a_number_in_groups_goes_as_a_whole(redactor: PresidioRedactor) -> None:
    assert await left_of(redactor, IN_GROUPS) == IN_GROUPS
