"""SQL over tables with private cells: whatever it makes of them, it has placeholders to make it of."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from tests.attacks.structures import OTHER, STRUCTURES, THIRD, Structure
from tests.attacks.structures import PASSWORD as PLANTED
from tests.support.agent_environment import NOON, AgentEnvironment, make_tool_use
from tests.support.agent_fixtures import open_agent_environment, open_agent_environment_copy
from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory
from waystation.documents.documents import SourceDocument
from waystation.documents.ports import TableEngine
from waystation.documents.redacted_documents import RedactedDocumentStore, RedactedTableReader
from waystation.documents.table_engine import engine_child
from waystation.documents.table_engine.engine import DuckDbTableEngine, EngineRequest, EngineResponse
from waystation.documents.table_engine.grid import read_grid
from waystation.documents.table_redaction import TableRedactor
from waystation.documents.tables import QueryResult, Table, TableText
from waystation.kernel.errors import TableQueryError
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import RedactionPolicy, RedactionResult, Span, TextDestination
from waystation.security.placeholders import compute_fingerprint

KEY = bytes(range(32))
EMAIL, SSN, PASSWORD, PHONE = "ada.byron@example.org", "219-09-9999", "hunter2", "2125550147"
WORDS = "summer of the open sea and of the long cold night"
PEOPLE = ("Ada Lovelace", "Grace Hopper", "Kurt Weidmann", "Anna Berg")
STAFF = f"""\
id,email,ssn,password,phone,pay,since
1,{EMAIL},{SSN},{PASSWORD},{PHONE},1250.50,2026-01-02
2,bob@example.org,457-55-5462,{WORDS},2125550148,99.60,2026-02-03
3,cy@example.org,078-05-1120,letmein,555-0149,12.00,2026-03-04
"""
PRIVATE = (EMAIL, SSN, PASSWORD, PHONE, WORDS, "bob@example.org", "457-55-5462", "letmein", "555-0149")
DOCUMENTS = (
    SourceDocument(name="staff.csv", text=STAFF),
    SourceDocument(name="again.csv", text=f"mail,city\nADA.Byron@example.org,Oslo\n{EMAIL[::-1]},Bergen\n"),
    SourceDocument(name="bare.csv", text=f"{EMAIL},{SSN},1\nbob@example.org,457-55-5462,2\n"),
    SourceDocument(name="titled.csv", text=f"Staff list\nname,password\nbo,{PASSWORD}\ncy,letmein\n"),
    SourceDocument(name="pairs.csv", text=f"field,value\nemail,{EMAIL}\npassword,{PASSWORD}\nphone,{PHONE}\n"),
    SourceDocument(
        name="notes.md", text=f"# Staff\n\nname | password\n--- | ---\nbo | {PASSWORD}\ncy | letmein\n\nEnd.\n"
    ),
    SourceDocument(name="people.csv", text="employee,years\n" + "".join(f"{name},3\n" for name in PEOPLE)),
    SourceDocument(name=f"{EMAIL}.csv", text="a,b\n1,2\n"),
)


@dataclass
class Analyst:
    """An agent that queries tables with the real redactor, and a vault behind it."""

    env: AgentEnvironment
    redactor: TextRedactor
    tables: RedactedTableReader

    async def ask(self, sql: str | None, source: str = "staff.csv", *headless: str, **more: str) -> str:
        """The result, as its transcript has it."""
        redacted = RedactedDocumentStore(self.env.store, self.redactor)
        desk = replace(self.env.agent_deps, redactor=self.redactor, redacted_documents=redacted, tables=self.tables)
        call = make_tool_use("query_table", tables={"t": source, **more}, sql=sql, without_heading=list(headless))
        return (await desk.build_role_toolbox("research").run(call, await self.env.make_tool_context())).content


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the documents, to copy: making its tables takes longer than most of these tests."""
    path = tmp_path_factory.mktemp("prepared") / "waystation.db"

    async def prepare() -> None:
        async with open_agent_environment(path) as env:
            await env.open_task(DOCUMENTS)

    asyncio.run(prepare())
    return path


@pytest.fixture
async def env(prepared: Path, tmp_path: Path) -> AsyncIterator[AgentEnvironment]:
    async with open_agent_environment_copy(prepared, tmp_path) as env:
        yield env


class TablesHere:
    """A `TableEngine` that answers as its child does, in this process: a child costs half a second of computing."""

    async def read(self, text: TableText) -> Table:
        """See `TableEngine`."""
        table = self._answered(EngineRequest(text=text)).table
        assert table is not None
        return table

    async def query(self, sql: str, tables: Sequence[Table], most_rows: int) -> QueryResult:
        """See `TableEngine`."""
        rows = self._answered(EngineRequest(sql=sql, tables=tuple(tables), max_rows=most_rows)).rows
        assert rows is not None
        return rows

    def _answered(self, asked: EngineRequest) -> EngineResponse:
        answered = EngineResponse.model_validate_json(engine_child.answer(asked.model_dump_json().encode(), ()))
        if answered.rejection:
            raise TableQueryError(answered.rejection)
        return answered


def analyst_of(env: AgentEnvironment, presidio: PresidioRedactor, engine: TableEngine) -> Analyst:
    vault = env.store.build_vault(AesGcmCipher(KEY, "vault"))
    originals = VaultPlaceholderFactory(vault, partial(compute_fingerprint, KEY), lambda: NOON)
    redactor = TextRedactor(presidio, originals)
    return Analyst(env, redactor, RedactedTableReader(engine, TableRedactor(redactor, originals), env.clock))


@pytest.fixture(scope="module")
def presidio() -> Iterator[PresidioRedactor]:
    with closing(PresidioRedactor(KEY)) as redactor:
        yield redactor


@pytest.fixture
def analyst(env: AgentEnvironment, presidio: PresidioRedactor) -> Analyst:
    return analyst_of(env, presidio, TablesHere())


def forms(value: str) -> set[str]:
    """A value as the tricks below would show it."""
    encoded = value.encode()
    spelled = {
        value,
        value[::-1],
        encoded.hex(),
        base64.b64encode(encoded).decode().rstrip("="),
        "".join(f"{byte:08b}" for byte in encoded),
        " ".join(value),
        ",".join(value),
        ", ".join(str(ord(sign)) for sign in value),
        value.translate(str.maketrans("aeo", "430")),
        "".join(sign if sign.isalnum() else f"%{ord(sign):02X}" for sign in value),
    }
    return {form.casefold() for form in spelled}


TRICKS = (
    "SELECT hex({0}) FROM t",
    "SELECT reverse({0}) FROM t",
    "SELECT base64(encode({0})), to_base64(encode({0})) FROM t",
    "SELECT bin({0}), encode({0}) FROM t",
    "SELECT {0}[1:5], {0}[6:], substring({0}, 2), right({0}, 6), left({0}, 6) FROM t",
    "SELECT list_transform(string_split({0}, ''), x -> ascii(x)) FROM t",
    "SELECT string_agg({0}[n], ' ') FROM t, range(1, 80) r(n)",
    "SELECT regexp_extract_all({0}, '.'), regexp_replace({0}, '(.)', '\\1 ', 'g') FROM t",
    "SELECT translate({0}, 'aeo', '430'), rot13 FROM (SELECT *, {0} AS rot13 FROM t)",
    "SELECT url_encode({0}), md5({0}), hash({0}) FROM t",
    "SELECT CAST({0} AS BLOB), {0}::BIT FROM t",
    "SELECT CAST({0} AS INTEGER) FROM t",
    "SELECT CAST({0} AS DATE) FROM t",
    "SELECT strptime({0}, '%Y-%m-%d') FROM t",
    "SELECT error({0}) FROM t",
    "SELECT json({0}) FROM t",
    "SELECT {0}::ENUM('a') FROM t",
    "SELECT {0}::UUID FROM t",
    "SELECT a.{0} FROM t a JOIN t b ON a.{0} = reverse(reverse(b.{0}))",
    "SUMMARIZE t",
    "DESCRIBE t",
    "EXPLAIN ANALYZE SELECT * FROM t WHERE {0} = 'x'",
    "SELECT min({0}), max({0}), first({0}), any_value({0}), mode({0}), histogram({0}) FROM t",
    "SELECT printf('%s', {0}), format('{{}}', {0}), concat_ws('-', {0}, id) FROM t",
    "SELECT t FROM t",
    "SELECT to_json(t) FROM t",
    "UNPIVOT (SELECT email, ssn, password, phone FROM t) ON COLUMNS(*)",
    "SELECT COLUMNS('.*') FROM t",
    "FROM t",
)


async def test_no_trick_of_sql_brings_back_what_a_cell_was(analyst: Analyst) -> None:
    shown = dict[str, list[str]]()
    for trick in TRICKS:
        for column in ("email", "ssn", "password", "phone") if "{0}" in trick else ("email",):
            sql = trick.format(column)
            said = (await analyst.ask(sql)).casefold()
            shown[sql] = [form for value in PRIVATE for form in forms(value) if form in said]
    assert {sql: found for sql, found in shown.items() if found} == {}


async def test_a_child_says_what_the_engine_says_here(
    analyst: Analyst, env: AgentEnvironment, presidio: PresidioRedactor
) -> None:
    apart = analyst_of(env, presidio, DuckDbTableEngine())
    for trick in ("SELECT hex({0}), reverse({0}) FROM t", "SELECT CAST({0} AS DATE) FROM t", "SUMMARIZE t"):
        assert await apart.ask(trick.format("email")) == await analyst.ask(trick.format("email"))


async def test_figures_stay_figures_and_lines_stay_lines(analyst: Analyst) -> None:
    seen = await analyst.ask(None)
    assert '"id" BIGINT' in seen
    assert '"pay" DECIMAL(18,2), "since" DATE, "_line" BIGINT' in seen
    assert "| 1362.10 | 4 |" in await analyst.ask("SELECT sum(pay), max(_line) FROM t")
    assert (await analyst.ask("SELECT 1 FROM t")).startswith("table t is [staff.csv:1-4]")


async def test_placeholders_are_joined_grouped_counted_and_asked_for(analyst: Analyst) -> None:
    assert "| 3 | 3 |" in await analyst.ask("SELECT count(DISTINCT email), count(DISTINCT password) FROM t")
    joined = await analyst.ask("SELECT u.city FROM t JOIN u ON t.email = u.mail", u="again.csv")
    assert "1 row\n| city |\n| --- |\n| Oslo |" in joined
    cell = (await analyst.ask("SELECT email FROM t WHERE id = 1")).rpartition("| <")[2].partition(" |")[0]
    assert "| 1 |" in await analyst.ask(f"SELECT id FROM t WHERE email = '<{cell}'")


async def test_a_guess_is_confirmed_by_nothing(analyst: Analyst) -> None:
    confirmed = dict[str, str]()
    for value, column in product(PRIVATE, ("email", "ssn", "password", "phone")):
        guess = f"{column} ILIKE '%{value[:6]}%'"
        found = await analyst.ask(f"SELECT count(*) AS n FROM t WHERE {guess}")
        if "| 0 |" not in found and "error" not in found.casefold():
            confirmed[guess] = found
    assert confirmed == {}


async def test_a_table_without_a_heading_has_no_private_names_of_columns(analyst: Analyst) -> None:
    for headless in ((), ("t",)):
        said = await analyst.ask("SELECT * FROM t", "bare.csv", *headless)
        assert not [value for value in PRIVATE if value in said]
        assert "| 2 |" in said
    reversed_ = await analyst.ask("SELECT reverse(COLUMNS('column_.')) FROM t", "bare.csv", "t")
    assert EMAIL[::-1] not in reversed_
    names = "SELECT list(column_name) FROM (DESCRIBE t)"
    assert EMAIL not in await analyst.ask(names, "bare.csv")


@pytest.mark.parametrize("lines", ["2-4", "2-2", "3-3", "4-4"])
async def test_lines_without_the_heading_are_as_private_as_with_it(analyst: Analyst, lines: str) -> None:
    said = await analyst.ask("SELECT reverse(COLUMNS(* EXCLUDE (_line)::VARCHAR)) FROM t", f"staff.csv:{lines}", "t")
    plain = await analyst.ask("SELECT * FROM t", f"staff.csv:{lines}", "t")
    assert not [form for value in PRIVATE for form in (value, value[::-1]) if form in said + plain]


@pytest.mark.parametrize(
    ("source", "sql"),
    [
        ("titled.csv", "SELECT reverse(column_2) FROM t"),
        ("titled.csv:3-4", "SELECT reverse(COLUMNS(*)::VARCHAR) FROM t"),
        ("pairs.csv", "SELECT reverse(value) FROM t"),
        ("pairs.csv:3-4", "SELECT reverse(COLUMNS(*)::VARCHAR) FROM t"),
        ("notes.md:3-6", "SELECT reverse(password) FROM t"),
        ("notes.md:5-6", "SELECT reverse(COLUMNS(*)::VARCHAR) FROM t"),
        ("notes.md:6-6", "SELECT reverse(COLUMNS(*)::VARCHAR) FROM t"),
    ],
)
async def test_titles_pairs_and_tables_in_prose_show_what_cells_are(analyst: Analyst, source: str, sql: str) -> None:
    for headless in ((), ("t",)):
        said = await analyst.ask(
            sql if not headless else "SELECT reverse(COLUMNS(*)::VARCHAR) FROM t", source, *headless
        )
        assert not [value for value in PRIVATE for form in forms(value) if form in said.casefold()]


async def test_a_broken_line_further_down_does_not_unveil_those_above(analyst: Analyst, env: AgentEnvironment) -> None:
    env.task_id = "task-2"
    await env.open_task([SourceDocument(name="broken.csv", text=STAFF + '4,"open,a,b,c,1,2\n')])
    for lines in ("2-3", "3-3"):
        said = await analyst.ask("SELECT reverse(COLUMNS(*)::VARCHAR) FROM t", f"broken.csv:{lines}", "t")
        assert "rows" in said
        assert not [value for value in PRIVATE for form in forms(value) if form in said.casefold()]


async def test_a_column_of_names_is_one_of_names_under_strict(env: AgentEnvironment) -> None:
    with closing(PresidioRedactor(KEY, DetectionConfig(policy=RedactionPolicy.STRICT))) as presidio:
        strict = analyst_of(env, presidio, TablesHere())
        said = await strict.ask("SELECT reverse(employee), hex(employee), years FROM t", "people.csv")
        assert not [name for name in PEOPLE for form in forms(name) if form in said.casefold()]
        assert "| 4 | 12 |" in await strict.ask("SELECT count(DISTINCT employee), sum(years) FROM t", "people.csv")
        one = await strict.ask("SELECT reverse(COLUMNS(*)::VARCHAR) FROM t", "people.csv:4-4", "t")
        assert "namdieW" not in one


async def test_a_document_with_a_private_name_is_not_named_by_sql(analyst: Analyst) -> None:
    said = await analyst.ask("SELECT nothing FROM t", f"{EMAIL}.csv")
    assert EMAIL not in said


TORN = (
    Structure("a label twice", f"PIN:\n4711\nPIN:\n8812\n{PLANTED},x\n", ("4711", "8812")),
    Structure("a command", f"mysql -h db, -u root, -p{PLANTED}\nmysql -h db, -u root, -p{OTHER}\n", (PLANTED, OTHER)),
    Structure(
        "quoted cells of several lines",
        f'name,note\nana,"Password:\n{PLANTED}"\nben,"Say ""hi"".\nPassword:\n{OTHER}"\n',
        (PLANTED, OTHER),
    ),
    Structure("a word that says nothing", "user,note\nana,password=none\nben,none\n", ()),
    Structure(
        "rows of an insert",
        f"INSERT INTO users (name, password) VALUES\n('ana', '{PLANTED}'),\n('ben', '{OTHER}');\n"
        f"INSERT INTO users (name, password) VALUES\n('cy', '{THIRD}');\n",
        (PLANTED, OTHER, THIRD),
    ),
)
AT_ONCE = 8
ROWS = "SELECT to_json({0})::VARCHAR FROM {0}"


async def everything(analyst: Analyst, sources: Sequence[str]) -> str:
    """All rows of these, as many in one query as it takes."""
    said: list[str] = []
    for first in range(0, len(sources), AT_ONCE):
        tables = {f"t{number}" if number else "t": one for number, one in enumerate(sources[first : first + AT_ONCE])}
        source, *_ = tables.values()
        sql = " UNION ALL ".join(map(ROWS.format, tables))
        said.append(await analyst.ask(sql, source, *tables, **{name: tables[name] for name in tables if name != "t"}))
    return "\n".join(said)


@pytest.mark.parametrize("structure", [*STRUCTURES, *TORN], ids=lambda one: one.name)
async def test_what_the_whole_document_hides_no_cell_shows(
    analyst: Analyst, presidio: PresidioRedactor, structure: Structure
) -> None:
    twice = structure.text * 2
    env, lines = analyst.env, len(twice.splitlines())
    env.task_id = "task-2"
    named = {"once.csv": structure.text, "twice.csv": twice, "notes.md": f"# Notes\n\n{twice}\nEnd."}
    await env.open_task([SourceDocument(name=name, text=text) for name, text in named.items()])
    texts = list(named.values())
    whole = [one.text for one in await presidio.redact(texts, TextDestination.TOOL_RESULT, env.ref.tenant)]
    hidden = [value for value in structure.planted if not any(value in text for text in whole)]
    assert len(hidden) == len(structure.planted)
    said = await analyst.ask("SELECT * FROM t", "once.csv") + await analyst.ask("SELECT * FROM t", "twice.csv")
    alone = [
        f"notes.md:{number}-{number}"
        for number, line in enumerate(structure.text.splitlines(), 3)
        if any(value in line for value in structure.planted)
    ]
    said += await everything(analyst, [*alone, f"notes.md:3-{2 + lines}", f"notes.md:4-{2 + lines}"])
    assert not [value for value in hidden if value in said]


@dataclass
class Addresses:
    """Finds the same address wherever it is."""

    address: str = "a@b.co"

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """See `Redactor`."""
        return tuple(RedactionResult(text="", spans=tuple(self._spans(text))) for text in texts)

    async def make_placeholders(self, type_: str, values: Sequence[str], tenant: str) -> dict[str, str]:
        """See `PlaceholderFactory`."""
        return {value: f"<{type_}_000000000000>" for value in values}

    def _spans(self, text: str) -> Iterator[Span]:
        start = text.find(self.address)
        while start >= 0:
            end = start + len(self.address)
            yield Span(type="EMAIL", start=start, end=end, score=1, placeholder="<EMAIL_000000000000>")
            start = text.find(self.address, end)


async def test_a_long_cell_full_of_private_values_takes_as_long_as_it_is() -> None:
    found = Addresses()
    columns = TableRedactor(found, found)

    async def seconds(addresses: int) -> float:
        cell = "a@b.co " * addresses
        table = read_grid(TableText(name="t", text=f"id,note\n1,{cell}\n2,x\n"))
        began = time.process_time()
        redacted = await columns.redact_table(table, "acme")
        assert not [value for column in redacted.table.columns for value in column.values if "@" in value]
        return time.process_time() - began

    few = min([await seconds(1_000) for _ in range(3)])
    assert await seconds(16_000) < 16 * 5 * few
