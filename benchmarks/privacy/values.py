"""Values of one kind each, generated from a seed: private ones, and ones that must stay."""

import base64
import hashlib
import random
import string
from collections.abc import Callable, Mapping

from faker import Faker

LOCALES = ("en_US", "en_GB", "de_DE", "es_ES", "it_IT", "pl_PL", "fr_FR")
ENGLISH = ("en_US", "en_GB")
HEX = "0123456789abcdef"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
TOKEN = string.ascii_letters + string.digits


class ValueGenerator:
    """A generator of values; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._fakers = {locale: Faker(locale) for locale in LOCALES}
        for faker in self._fakers.values():
            faker.seed_instance(seed)

    def value(self, kind: str) -> str:
        """A value of this kind: a key of `PRIVATE` or `KEPT`."""
        return (PRIVATE.get(kind) or KEPT[kind])(self)

    def faker(self, *locales: str) -> Faker:
        return self._fakers[self.random.choice(locales or LOCALES)]

    def random_string(self, alphabet: str, length: int) -> str:
        return "".join(self.random.choices(alphabet, k=length))


def _person(values: ValueGenerator) -> str:
    faker = values.faker(*ENGLISH)
    return f"{faker.first_name()} {faker.last_name()}"


def _phone(values: ValueGenerator) -> str:
    digits = values.random_string
    return values.random.choice(
        [
            f"+1 ({digits('23456789', 3)}) {digits('23456789', 3)}-{digits(string.digits, 4)}",
            f"{digits('23456789', 3)}-{digits('23456789', 3)}-{digits(string.digits, 4)}",
            f"+49 170 {digits(string.digits, 7)}",
            f"+44 20 7946 {digits(string.digits, 4)}",
            f"+34 6{digits(string.digits, 2)} {digits(string.digits, 3)} {digits(string.digits, 3)}",
            f"020 7946 {digits(string.digits, 4)}",
        ]
    )


def _card(values: ValueGenerator) -> str:
    number = values.faker("en_US").credit_card_number(
        values.random.choice(["visa16", "mastercard", "amex", "discover"])
    )
    grouped = " ".join(number[start : start + 4] for start in range(0, 16, 4))
    return values.random.choice([number, grouped]) if len(number) == 16 else number


def _iban(values: ValueGenerator) -> str:
    return values.faker("de_DE", "es_ES", "it_IT", "pl_PL", "fr_FR").iban()


def _nino(values: ValueGenerator) -> str:
    pair = values.random.choice(["AB", "CE", "JG", "NR", "SX", "PW"])
    return (
        f"{pair} {' '.join(values.random_string(string.digits, 2) for _ in range(3))} {values.random_string('ABCD', 1)}"
    )


def _nif(values: ValueGenerator) -> str:
    number = values.random.randrange(10_000_000, 99_999_999)
    return f"{number}{'TRWAGMYFPDXBNJZSQVHLCKE'[number % 23]}"


def _ssn(values: ValueGenerator) -> str:
    return (
        f"{values.random.randrange(100, 665)}-{values.random.randrange(10, 99)}-{values.random.randrange(1_000, 9_999)}"
    )


def _codice(values: ValueGenerator) -> str:
    return values.faker("it_IT").ssn()


def _passport(values: ValueGenerator) -> str:
    """Of the United States, the United Kingdom, Spain, Italy or Germany."""
    capitals, digits = string.ascii_uppercase, string.digits
    country = values.random.choice(((1, 8), (0, 9), (3, 6), (2, 7)))
    return values.random.choice(
        [
            values.random_string(capitals, country[0]) + values.random_string(digits, country[1]),
            f"C{values.random_string('CFGHJKLMNPRTVWXYZ0123456789', 7)}{values.random_string(digits, 1)}",
        ]
    )


def _licence(values: ValueGenerator) -> str:
    """British, by its form; or of an American state, a letter and digits."""
    capitals, digits = string.ascii_uppercase, string.digits
    born = f"{values.random.randrange(1, 13):02}{values.random.randrange(1, 29):02}"
    british = (
        f"{values.random_string(capitals, 5)}{values.random_string(digits, 1)}{born}{values.random_string(digits, 1)}"
    )
    return values.random.choice(
        [
            f"{british}{values.random_string(capitals, 2)}{values.random_string(digits, 1)}"
            f"{values.random_string(capitals, 2)}",
            f"{values.random_string(capitals, 1)}{values.random_string(digits, 7)}",
        ]
    )


def _wallet(values: ValueGenerator) -> str:
    """A Bitcoin address: kind and hash with their checksum, in base 58."""
    content = values.random.choice([b"\x00", b"\x05"]) + values.random.randbytes(20)
    checksum = hashlib.sha256(hashlib.sha256(content).digest()).digest()[:4]
    number, address = int.from_bytes(content + checksum), ""
    while number:
        number, digit = divmod(number, len(BASE58))
        address = BASE58[digit] + address
    return address if content[0] else f"1{address}"


def _tax_id(values: ValueGenerator) -> str:
    """German: of ten digits one stands twice, and the eleventh is a check by ISO 7064."""
    digits = values.random.sample(range(10), 9)
    digits.insert(values.random.randrange(2, 9), digits[0])
    if digits[0] == 0:
        digits = [9 - digit for digit in digits]
    product = 10
    for digit in digits:
        product = ((digit + product) % 10 or 10) * 2 % 11
    return "".join(map(str, [*digits, (11 - product) % 10]))


def _password(values: ValueGenerator) -> str:
    return values.random_string(TOKEN, 10) + str(values.random.randrange(10)) + values.random_string("!%^*-_", 2) + "k"


def _secret(values: ValueGenerator) -> str:
    drawn = values.random_string
    return values.random.choice(
        [
            f"sk-ant-api03-{drawn(TOKEN, 40)}",
            f"sk-proj-{drawn(TOKEN, 20)}7{drawn(TOKEN, 20)}",
            f"AKIA{drawn(string.ascii_uppercase + string.digits, 16)}",
            f"ghp_{drawn(TOKEN, 36)}",
            f"glpat-{drawn(TOKEN, 20)}",
            f"xoxb-{drawn(string.digits, 12)}-{drawn(TOKEN, 24)}",
            f"sk_live_{drawn(TOKEN, 24)}",
            f"AIza{drawn(TOKEN, 35)}",
            f"npm_{drawn(TOKEN, 36)}",
            f"pypi-AgEIcHlwaS5vcmc{drawn(TOKEN, 60)}",
            f"hf_{drawn(TOKEN, 34)}",
            f"SG.{drawn(TOKEN, 22)}.{drawn(TOKEN, 43)}",
            f"{drawn(TOKEN, 3)}8Q~{drawn(TOKEN, 34)}",
            ".".join(["eyJ" + drawn(TOKEN, 20), "eyJ" + drawn(TOKEN, 40), drawn(TOKEN, 43)]),
        ]
    )


def _storage_key(values: ValueGenerator) -> str:
    return base64.b64encode(values.random.randbytes(64)).decode()


def _opaque_token(values: ValueGenerator) -> str:
    return f"{values.random_string(TOKEN, 20)}7Qa{values.random_string(TOKEN, 12)}"


def _city(values: ValueGenerator) -> str:
    return values.random.choice(
        [
            "Berlin",
            "Madrid",
            "Chicago",
            "Toronto",
            "Manchester",
            "San Francisco",
            "Warsaw",
            "Kyoto",
            "Nairobi",
            "Lisbon",
        ]
    )


def _ipv4(values: ValueGenerator) -> str:
    return f"{values.random.randrange(11, 223)}.{'.'.join(str(values.random.randrange(1, 254)) for _ in range(3))}"


PRIVATE: Mapping[str, Callable[[ValueGenerator], str]] = {
    "PERSON": _person,
    "LOCATION": _city,
    "EMAIL": lambda values: values.faker().email(),
    "PHONE": _phone,
    "CARD": _card,
    "IBAN": _iban,
    "SSN": _ssn,
    "UK_NINO": _nino,
    "ES_NIF": _nif,
    "IT_FISCAL_CODE": _codice,
    "PL_PESEL": lambda values: values.faker("pl_PL").pesel(),
    "DE_TAX_ID": _tax_id,
    "PASSPORT": _passport,
    "LICENCE": _licence,
    "ACCOUNT": lambda values: str(values.random.randrange(10**7, 10**12)),
    "WALLET": _wallet,
    "IP": _ipv4,
    "MAC": lambda values: values.faker().mac_address(),
    "SECRET": _secret,
    "PASSWORD": _password,
    "STORAGE_KEY": _storage_key,
    "OPAQUE_TOKEN": _opaque_token,
}
"""By kind. The last four are all of the type SECRET."""

TYPES: Mapping[str, str] = {"PASSWORD": "SECRET", "STORAGE_KEY": "SECRET", "OPAQUE_TOKEN": "SECRET"}
"""Of kinds that are not types themselves."""

KEPT: Mapping[str, Callable[[ValueGenerator], str]] = {
    "date": lambda values: values.faker("en_US").date(),
    "day": lambda values: values.faker("en_US").date(values.random.choice(["%d.%m.%Y", "%m/%d/%Y", "%d %B %Y"])),
    "moment": lambda values: f"{values.faker('en_US').date()}T{values.faker('en_US').time()}Z",
    "time": lambda values: values.faker("en_US").time(),
    "order": lambda values: f"{values.random.randrange(1_000, 9_999)}-{values.random.randrange(10**7, 10**8)}",
    "invoice": lambda values: str(values.random.randrange(10**9, 10**12)),
    "version": lambda values: ".".join(str(values.random.randrange(0, 40)) for _ in range(3)),
    "port": lambda values: str(values.random.randrange(1_024, 65_535)),
    "lines": lambda values: f"{(first := values.random.randrange(1, 900))}-{first + values.random.randrange(1, 90)}",
    "uuid": lambda values: values.faker("en_US").uuid4(),
    "sha": lambda values: values.random_string(HEX, 40),
    "commit": lambda values: f"{values.random_string(HEX, 7)}",
    "figure": lambda values: f"{values.random.randrange(1_000, 9_999_999):,}",
    "epoch": lambda values: str(values.random.randrange(1_600_000_000_000, 1_800_000_000_000)),
    "call": lambda values: f"toolu_{values.random_string(TOKEN, 24)}",
    "citation": lambda values: f"[notes-{values.random.randrange(1, 90)}.md:{values.random.randrange(1, 90)}-{99}]",
    "path": lambda values: f"/srv/app/{values.random_string(string.ascii_lowercase, 6)}/main.py",
    "placeholder": lambda values: f"<EMAIL_{values.random_string(HEX, 12)}>",
}
"""By kind: what an agent must be able to go on working with."""
