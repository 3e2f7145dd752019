"""Measures private values that the lines around them reveal: shown or not, however an agent requests their document.

The structures are those of the attack tests, so their forms are in-sample; the values are generated from the seed.
"""

import asyncio
import string
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.budgets.tables import print_table
from benchmarks.privacy.finders import KEY
from benchmarks.privacy.values import PRIVATE, ValueGenerator
from tests.attacks.structures import STRUCTURES, Structure
from tests.support.agent_environment import NOON, AgentEnvironment, ManualClock, make_tool_use
from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory
from waystation.documents.documents import SourceDocument
from waystation.documents.redacted_documents import RedactedDocumentStore, RedactedTableReader
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.documents.table_redaction import TableRedactor
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import TextDestination
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.security.placeholders import compute_fingerprint

SEED = 1
SMALL_WINDOW = 60
"""Tokens of a window in which a page is a few lines."""
TABULATED = frozenset({"csv", "csv quoted", "csv semicolons", "tsv", "phones in csv", "phones in tsv"})
"""Structures that can be queried."""
QUERIES = (
    "SELECT * FROM t",
    "SELECT COLUMNS(*)::VARCHAR || '' FROM t",
    "SELECT reverse(COLUMNS(*)::VARCHAR) FROM t",
    "SELECT hex(COLUMNS(*)::VARCHAR) FROM t",
)
_ABOVE, _BELOW = "# Harbour notes\n\nThe bar moved.\n\n", "\nThe end of it.\n"
_KEPT_DIGITS = 2
"""At the beginning of a phone number: they say what it is."""


def generate_structure(structure: Structure, values: ValueGenerator) -> Structure:
    """The same structure with other values of the same shape."""
    text, planted = structure.text, list[str]()
    for old in structure.planted:
        new = _like(structure.name, old, values)
        text = text.replace(old, new)
        planted.append(new)
    return Structure(structure.name, text, tuple(planted))


def generate_structures(seed: int) -> list[Structure]:
    """Every structure, with values of this seed."""
    values = ValueGenerator(seed)
    return [generate_structure(structure, values) for structure in STRUCTURES]


def build_document(structure: Structure, name: str) -> SourceDocument:
    """The structure in a document: tables alone in their file, other structures between sentences."""
    if structure.name not in TABULATED:
        return SourceDocument(name=f"{name}.md", text=_ABOVE + structure.text + _BELOW)
    return SourceDocument(name=f"{name}.{'tsv' if 'tsv' in structure.name else 'csv'}", text=structure.text)


def _like(name: str, old: str, values: ValueGenerator) -> str:
    if name == "card" or name.startswith("iban"):
        compact = PRIVATE["CARD" if name == "card" else "IBAN"](values).replace(" ", "")
        return " ".join(compact[start : start + 4] for start in range(0, len(compact), 4))
    kept = _KEPT_DIGITS if name.startswith("phones") else 0
    return old[:kept] + "".join(_sign_like(sign, values) for sign in old[kept:])


def _sign_like(sign: str, values: ValueGenerator) -> str:
    for alphabet in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
        if sign in alphabet:
            return values.random_string(alphabet, 1)
    return sign


def find_shown_values(values: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The values of which two thirds or more stand in one of the texts, as they are, reversed or in hexadecimal."""
    folded = [text.casefold() for text in texts]
    return [
        value
        for value in values
        if any(form.casefold() in text for form in _forms(value[: len(value) * 2 // 3]) for text in folded)
        or any(value[::-1][: len(value) * 2 // 3].casefold() in text for text in folded)
    ]


def _forms(value: str) -> tuple[str, str]:
    return value, value.encode().hex()


@dataclass(frozen=True)
class Reader:
    """An agent that asks for one document in every way."""

    env: AgentEnvironment
    redactor: TextRedactor
    originals: VaultPlaceholderFactory
    structure: Structure

    @property
    def document(self) -> SourceDocument:
        """What it asks for."""
        return build_document(self.structure, "staff")

    async def presentations(self) -> Mapping[str, Sequence[str]]:
        """What is shown, by how."""
        text = self.document.text
        numbers = range(1, len(text.splitlines()) + 1)
        (plain,) = await self.redactor.redact([text], TextDestination.TOOL_RESULT, "t")
        read = "read_document"
        seen: dict[str, Sequence[str]] = {
            "plain": [plain.text],
            "numbered": [await self._call(read)],
            "from a line on": [await self._call(read, first_line=one) for one in numbers],
            "line by line": [await self._call(read, first_line=one, last_line=one) for one in numbers],
            "small pages": [await self._call(read, window=SMALL_WINDOW, first_line=one) for one in numbers],
            "search": [
                await self._call("search_documents", query=query, name=None)
                for query in ("harbour bar end name password", self.structure.text[:400])
            ],
        }
        if self.structure.name in TABULATED:
            tables = {"t": self.document.name}
            seen["SQL"] = [await self._call("query_table", name=None, sql=sql, tables=tables) for sql in QUERIES]
        return seen

    async def _call(self, tool: str, *, window: int = 20_000, **arguments: object) -> str:
        desk = replace(
            self.env.agent_deps,
            redactor=self.redactor,
            redacted_documents=RedactedDocumentStore(self.env.store, self.redactor),
            tables=RedactedTableReader(
                DuckDbTableEngine(), TableRedactor(self.redactor, self.originals), self.env.clock
            ),
        )
        given = {key: value for key, value in ({"name": self.document.name} | arguments).items() if value is not None}
        site = await self.env.make_tool_context(window=window)
        result = await desk.build_role_toolbox("research").run(make_tool_use(tool, "call", **given), site)
        assert not result.is_error, result.content
        return result.content


async def measure_leaks(
    structures: Sequence[Structure], redactor: Redactor
) -> tuple[Counter[str], Counter[str], set[str]]:
    """By presentation: values that were there, values that were shown, and the structures of those."""
    there, leaked, where = Counter[str](), Counter[str](), set[str]()
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock()
        store = await SqlStore.open(f"sqlite+aiosqlite:///{Path(folder) / 'waystation.db'}", lambda: NOON)
        originals = VaultPlaceholderFactory(
            store.build_vault(AesGcmCipher(KEY, "vault")), partial(compute_fingerprint, KEY), clock
        )
        try:
            for number, structure in enumerate(structures):
                env = AgentEnvironment(
                    store=store, clock=clock, store_id=await store.get_store_id(), task_id=f"task-{number}"
                )
                reader = Reader(env, TextRedactor(redactor, originals), originals, structure)
                await env.open_task([reader.document])
                for how, texts in (await reader.presentations()).items():
                    found = find_shown_values(structure.planted, texts)
                    there[how] += len(structure.planted)
                    leaked[how] += len(found)
                    where.update(f"{structure.name}, {how}" for _ in found)
        finally:
            await store.aclose()
    return there, leaked, where


def prove() -> None:
    """Print the table. Raises AssertionError where a value was shown."""
    with closing(PresidioRedactor(KEY)) as redactor:
        there, leaked, where = asyncio.run(measure_leaks(generate_structures(SEED), redactor))
    title = f"{len(STRUCTURES)} structures with generated values, seed {SEED}"
    print_table(title, ("presentation", "values", "of them shown"), [(how, there[how], leaked[how]) for how in there])
    assert leaked.total() == 0, sorted(where)
