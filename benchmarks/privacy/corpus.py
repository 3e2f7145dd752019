"""A labelled corpus of what agents read and write: chat, logs, tables and code, with known values in known places."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.privacy.values import KEPT, PRIVATE, TYPES, ValueGenerator

CHAT = (
    "Please write to {PERSON} at {EMAIL} before {day}, the deadline of order {order}.",
    "I spoke with {PERSON} in {LOCATION} yesterday; call back under {PHONE} about invoice {invoice}.",
    "My card {CARD} was charged {figure} euros on {date}.",
    "Transfer it to {IBAN}, as {PERSON} asked on {day}.",
    "My social security number is {SSN} and my passport number is {PASSPORT}.",
    "{PERSON} moved from {LOCATION} to {LOCATION} and now has the NI number {UK_NINO}.",
    "For the lease we need the DNI {ES_NIF} of {PERSON}, signed by {day}.",
    "Il codice fiscale {IT_FISCAL_CODE} goes into the form, see {citation}.",
    "The file of PESEL {PL_PESEL} was closed on {date} at {time}.",
    "The password is {PASSWORD}, and the wifi is called lobby.",
    "Here is the token for staging: {OPAQUE_TOKEN}",
    "According to {citation} revenue grew to {figure}, and lines {lines} say why.",
    "Version {version} fixed it, in commit {commit}; we run {version} since {date}.",
    "The report says that {placeholder} agreed on {day}.",
    "The driver's license {LICENCE} of {PERSON} was checked on {date}.",
    "Her bank account number is {ACCOUNT}, the order is {order}.",
    "Her Steuer-ID is {DE_TAX_ID}; see {citation}, lines {lines}.",
    "Ask {PERSON} whether order {order} or invoice {invoice} is meant.",
)
LOGS = (
    "{moment} INFO worker[{port}]: login of {EMAIL} from {IP} took {figure} ms",
    "{moment} WARN dhcp: lease of {IP} to {MAC} expired at {time}",
    "{moment} ERROR payment of card {CARD} refused, request {uuid}",
    "{moment} DEBUG call {call} finished, {figure} tokens, sha {sha}",
    "{moment} INFO deployed {version} ({commit}) to port {port} at {epoch}",
    "{date} {time} sshd: accepted key for deploy from {IP} port {port}",
    "{moment} INFO payout of {figure} to wallet {WALLET} confirmed, request {uuid}",
    "{moment} INFO export AWS_ACCESS_KEY_ID done, key {SECRET} rotated",
)
TABLES = (
    "| {uuid} | {PERSON} | {EMAIL} | {PHONE} | {date} |",
    "| {order} | {LOCATION} | {figure} | {day} | open |",
    "id,holder,iban,amount\n{invoice},{PERSON},{IBAN},{figure}",
    "| run | sha | lines | port |\n| {call} | {sha} | {lines} | {port} |",
    "ssn,{SSN},{date}",
)
CODE = (
    'client = Client(api_key="{SECRET}", timeout=30, port={port})',
    'DATABASE_URL = "postgresql://app:{PASSWORD}@db.internal:{port}/main"',
    "export SERVICE_TOKEN={OPAQUE_TOKEN}  # since {date}",
    "AccountName=store;AccountKey={STORAGE_KEY};EndpointSuffix=core.example.net",
    "    assert response.headers['x-request-id'] == '{uuid}'  # see {path}, lines {lines}",
    'git checkout {sha} && pip install "tool=={version}"',
    '{{"user": "{EMAIL}", "ip": "{IP}", "order": "{order}", "at": "{moment}"}}',
    "curl -H 'Authorization: Bearer {OPAQUE_TOKEN}' https://api.example.net/v1/items/{invoice}",
    "for row in rows[{port}:]:  # {figure} rows, first {epoch}",
)
TEMPLATES = (*CHAT, *LOGS, *TABLES, *CODE)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Label:
    """A value that was put in, in characters of its text."""

    kind: str
    start: int
    end: int

    @property
    def type(self) -> str:
        return TYPES.get(self.kind, self.kind)

    @property
    def private(self) -> bool:
        return self.kind in PRIVATE


@dataclass(frozen=True)
class Sentence:
    text: str
    labels: Sequence[Label]


def sentences(count: int, seed: int) -> Iterator[Sentence]:
    """As many sentences, the templates in turn."""
    values = ValueGenerator(seed)
    for number in range(count):
        yield _filled(TEMPLATES[number % len(TEMPLATES)], values)


def _filled(template: str, values: ValueGenerator) -> Sentence:
    text, labels, position = "", list[Label](), 0
    for slot in _SLOT.finditer(template):
        text += _plain(template[position : slot.start()])
        value = values.value(slot[1])
        labels.append(Label(slot[1], len(text), len(text) + len(value)))
        text, position = text + value, slot.end()
    return Sentence(text + _plain(template[position:]), labels)


def _plain(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")


assert set(_SLOT.findall(" ".join(TEMPLATES))) <= {*PRIVATE, *KEPT}
