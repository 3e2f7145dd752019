from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pytest
from inline_snapshot import snapshot

from tests.support.agent_environment import (
    NAME,
    NAME_PLACEHOLDER,
    SECRET,
    SECRET_PLACEHOLDER,
    AgentEnvironment,
    make_tool_use,
)
from waystation.agents.tools import tables
from waystation.agents.tools.tables import CalculatorTool, QueryTableTool
from waystation.agents.tools.toolbox import Toolbox
from waystation.context.transcript import ToolUse
from waystation.documents.documents import SourceDocument
from waystation.documents.redacted_documents import RedactedDocumentStore, RedactedTableReader
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.documents.table_redaction import TableRedactor
from waystation.kernel.errors import TextRedactionError
from waystation.privacy.policy import TEXT_LEFT_OUT, RedactionResult, TextDestination, VaultEntry, make_failed_redaction
from waystation.testing.doubles import PlainRedactor

DOCUMENTS = (
    SourceDocument(
        name="q3.csv",
        text="region;net amount;sold\nNorth;1250.40;2026-07-01\nSouth;99.60;2026-08-15\nNorth;0.10;2026-09-30",
    ),
    SourceDocument(name="staff.csv", text=f"name,key,pay\nBo,none,10\nCy | Di,{SECRET},20"),
    SourceDocument(
        name="book.xlsx",
        text="[sheet Costs]\nitem | cost\nRent, office | 700\nPaper | 12.5\n\n[sheet Notes]\nonly\nwords",
    ),
    SourceDocument(name="wide.csv", text="\n".join([",".join(["x" * 40] * 400)] * 3)),
    SourceDocument(name="broken.csv", text='a,b\n1,"2'),
)


@dataclass
class TableToolEnvironment:
    """An office whose agents have these two tools."""

    env: AgentEnvironment
    toolbox: Toolbox

    async def call(self, call: ToolUse, window: int = 20_000) -> str:
        result = await self.toolbox.run(call, await self.env.make_tool_context(window=window))
        return f"ERROR {result.content}" if result.is_error else result.content

    async def calculate(self, expression: str) -> str:
        return await self.call(make_tool_use("calculate", expression=expression))


@pytest.fixture
async def counting(bare_env: AgentEnvironment) -> TableToolEnvironment:
    await bare_env.open_task(DOCUMENTS)
    store, engine = bare_env.store, DuckDbTableEngine()
    tools = [
        CalculatorTool(engine),
        QueryTableTool(store, bare_env.redacted_documents, bare_env.table_reader),
    ]
    return TableToolEnvironment(bare_env, Toolbox(tools, store=store, redactor=bare_env.redactor))


async def test_a_calculation_says_whether_it_is_exact(counting: TableToolEnvironment) -> None:
    assert await counting.calculate("0.1 + 0.2") == "= 0.3"
    assert await counting.calculate("1 / 3 -- a third") == snapshot(
        "≈ 0.3333333333333333 (floating point: exact to about 15 digits)"
    )
    assert await counting.calculate("date_diff('day', DATE '2024-01-31', DATE '2025-03-01')") == "= 395"
    assert await counting.calculate("99999999999::HUGEINT * 99999999999") == "= 9999999999800000000001"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / 0", "divides by zero, or its result is too large"),
        ("1 + NULL", "a part of it is NULL"),
        ("1,234.5 + 1", "Write numbers without thousands separators"),
        ("1) AS a, (2", "exactly one value"),
        ("99999999999 * 99999999999", "99999999999::HUGEINT"),
        ("(SELECT content FROM read_text('/etc/hostname'))", "disabled by configuration"),
        ("1); DROP TABLE t; SELECT (1", "A query must be a single SELECT"),
        ("15% of 3", "Parser Error"),
    ],
)
async def test_what_has_no_value_is_an_error_that_says_why(
    counting: TableToolEnvironment, expression: str, reason: str
) -> None:
    result = await counting.calculate(expression)
    assert result.startswith("ERROR ")
    assert reason in result


async def test_a_table_is_looked_at_before_it_is_queried(counting: TableToolEnvironment) -> None:
    assert await counting.call(make_tool_use("query_table", tables={"sales": "q3.csv"})) == snapshot("""\
table sales is [q3.csv:1-4]
columns: "region" VARCHAR, "net amount" DECIMAL(18,2), "sold" DATE, "_line" BIGINT
3 rows
| region | net amount | sold | _line |
| --- | --- | --- | --- |
| North | 1250.40 | 2026-07-01 | 2 |
| South | 99.60 | 2026-08-15 | 3 |
| North | 0.10 | 2026-09-30 | 4 |\
""")


async def test_a_query_says_where_its_tables_stand(counting: TableToolEnvironment) -> None:
    call = make_tool_use(
        "query_table",
        tables={"sales": "q3.csv", "costs": "book.xlsx:3-3"},
        sql='SELECT region, sum("net amount") AS total, any_value(column_2) AS rent FROM sales, costs GROUP BY 1',
        without_heading=["costs"],
    )
    assert await counting.call(call) == snapshot("""\
table sales is [q3.csv:1-4]
table costs is [book.xlsx:3-3]
2 rows
| region | total | rent |
| --- | --- | --- |
| North | 1250.50 | 700 |
| South | 99.60 | 700 |\
""")


async def test_cells_keep_within_their_row(counting: TableToolEnvironment) -> None:
    call = make_tool_use(
        "query_table",
        tables={"t": "staff.csv"},
        sql="SELECT name, 'a' || chr(10) || chr(0) || 'b' AS x, NULL AS y FROM t",
    )
    assert (await counting.call(call)).splitlines()[-1] == r"| Cy \| Di | a  b | NULL |"


async def test_a_query_runs_over_placeholders_in_the_place_of_what_is_private(counting: TableToolEnvironment) -> None:
    sql = f"SELECT key, length(key) AS n FROM t WHERE key = '{SECRET_PLACEHOLDER}'"
    result = await counting.call(make_tool_use("query_table", tables={"t": "staff.csv"}, sql=sql))
    assert f"| {SECRET_PLACEHOLDER} | {len(SECRET_PLACEHOLDER)} |" in result


class OneOriginal:
    """A vault that holds what the secret's placeholder stands for."""

    async def store_originals(self, tenant: str, originals: Sequence[VaultEntry], session: str = "") -> frozenset[str]:
        raise NotImplementedError

    async def load_originals(
        self, tenant: str, placeholders: Collection[str], session: str | None = None
    ) -> dict[str, str]:
        return {SECRET_PLACEHOLDER: SECRET} if SECRET_PLACEHOLDER in placeholders else {}

    async def delete_originals(self, tenant: str, placeholders: Collection[str]) -> int:
        raise NotImplementedError


@pytest.mark.parametrize("lines", ["", ":1-3"])
async def test_documents_and_values_are_called_by_their_placeholders(bare_env: AgentEnvironment, lines: str) -> None:
    await bare_env.open_task([SourceDocument(name=f"{SECRET}.csv", text=f"key,pay\nnone,10\n{SECRET},20")])
    store = bare_env.store
    tools = [QueryTableTool(store, bare_env.redacted_documents, bare_env.table_reader)]
    box = Toolbox(tools, store=store, redactor=bare_env.redactor, vault=OneOriginal())
    sql = f"SELECT * FROM t WHERE key = '{SECRET_PLACEHOLDER}'"
    call = make_tool_use("query_table", tables={"t": f"{SECRET_PLACEHOLDER}.csv{lines}"}, sql=sql)
    result = await box.run(call, await bare_env.make_tool_context())
    assert result.content.splitlines()[0] == f"table t is [{SECRET_PLACEHOLDER}.csv:1-3]"
    assert result.content.splitlines()[-1] == f"| {SECRET_PLACEHOLDER} | 20 | 3 |"


class Stubborn(PlainRedactor):
    """Redacts no text with this in it, but the document."""

    def __init__(self, document: str, unreadable: str, *, gives_up: bool) -> None:
        """`gives_up`: with a placeholder for all of it, else with an error."""
        super().__init__({SECRET: SECRET_PLACEHOLDER}, {NAME: NAME_PLACEHOLDER})
        self._document, self._unreadable, self._gives_up = document, unreadable, gives_up

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        unreadable = [self._unreadable in text and text != self._document for text in texts]
        if any(unreadable) and not self._gives_up:
            raise TextRedactionError(
                "even the last of 3 passes found further private values, so the text seems designed to prevent "
                "redaction"
            )
        results = await super().redact(texts, destination, tenant)
        both = zip(texts, results, unreadable, strict=True)
        return tuple(make_failed_redaction(text, "0" * 12) if bad else result for text, result, bad in both)


@pytest.mark.parametrize("gives_up", [False, True])
@pytest.mark.parametrize(
    ("look", "private", "seen"),
    [
        ("name: Bo", ("Bo", "Cy | Di"), ("10", "20", SECRET_PLACEHOLDER)),
        ("pay\t#\n10", ("10", "20"), ("Bo", r"Cy \| Di", SECRET_PLACEHOLDER)),
        ("Bo\nCy | Di", ("Bo", "Cy | Di"), ("10", "20", SECRET_PLACEHOLDER)),
        ("name\nkey\npay", (), ("10", "20", "Bo", SECRET_PLACEHOLDER)),
        ("swordfish", (), (SECRET_PLACEHOLDER,)),
        ("", ("Bo", "Cy | Di", "10", "20"), ()),
    ],
)
async def test_a_column_that_cannot_be_looked_at_is_private_and_the_task_goes_on(
    bare_env: AgentEnvironment, look: str, private: Sequence[str], seen: Sequence[str], *, gives_up: bool
) -> None:
    document = f"name,key,pay\nBo,none,10\nCy | Di,{SECRET},20"
    redactor = Stubborn(document, look, gives_up=gives_up)
    await bare_env.open_task([SourceDocument(name="staff.csv", text=document)])
    tables = RedactedTableReader(DuckDbTableEngine(), TableRedactor(redactor, redactor), bare_env.clock)
    redacted = RedactedDocumentStore(bare_env.store, redactor)
    box = Toolbox(
        [QueryTableTool(bare_env.store, redacted, tables)],
        store=bare_env.store,
        redactor=bare_env.redactor,
    )
    site = await bare_env.make_tool_context()
    result = await box.run(make_tool_use("query_table", tables={"t": "staff.csv"}, sql="SELECT * FROM t"), site)
    rows = [line.removeprefix("| ").split(" | ") for line in result.content.splitlines()[-2:]]
    cells = [cell for row in rows for cell in row]
    assert not set(private) & {cell.replace("\\", "") for cell in cells}
    assert set(seen) <= set(cells)
    hidden = [cell for cell in cells if cell.startswith("<SECRET_")]
    assert len(set(hidden)) == len(hidden) >= len(private), "other values have other placeholders"
    assert TEXT_LEFT_OUT in site.notes


async def test_a_sheet_of_a_workbook_is_named_by_its_lines(counting: TableToolEnvironment) -> None:
    parts = await counting.call(make_tool_use("query_table", tables={"costs": "book.xlsx"}))
    assert (
        "book.xlsx has several parts: sheet Costs (lines 2-4), sheet Notes (lines 7-8). Give the lines of one table"
        in parts
    )
    result = await counting.call(
        make_tool_use("query_table", tables={"costs": "book.xlsx:2-4"}, sql="SELECT * FROM costs")
    )
    assert result == snapshot("""\
table costs is [book.xlsx:2-4]
2 rows
| item | cost | _line |
| --- | --- | --- |
| Rent, office | 700.0 | 3 |
| Paper | 12.5 | 4 |\
""")


@pytest.mark.parametrize(
    ("tables", "sql", "reason"),
    [
        ({"t": "q4.csv"}, None, "There is no document 'q4.csv'. Did you mean q3.csv?"),
        ({"t": "q3.csv:3-9"}, None, "Lines 3-9 are not in q3.csv, which has 4 lines."),
        ({"t": "q3.csv:3-2"}, None, "Lines 3-2 are not in q3.csv"),
        ({"t": "book.xlsx:3-8"}, None, "has several parts: sheet Costs (lines 3-4), sheet Notes (lines 7-8)"),
        ({"t": "broken.csv"}, None, "The row of t that begins on line 2 cannot be read"),
        ({"t": "q3.csv", "T": "q3.csv"}, "FROM t", "already exists"),
        ({"t; DROP": "q3.csv"}, None, "These arguments cannot be used"),
        ({}, "SELECT 1", "These arguments cannot be used"),
        ({f"t{n}": "q3.csv" for n in range(9)}, None, "These arguments cannot be used"),
        ({"t": "q3.csv"}, "DELETE FROM t", "A query must be a single SELECT"),
        ({"t": "q3.csv"}, "SELECT amount FROM t", 'Candidate bindings: "net amount"'),
    ],
)
async def test_what_cannot_be_queried_is_an_error_that_says_why(
    counting: TableToolEnvironment, tables: dict[str, str], sql: str | None, reason: str
) -> None:
    result = await counting.call(make_tool_use("query_table", tables=tables, sql=sql))
    assert result.startswith("ERROR ")
    assert reason in result


async def test_tables_of_too_many_characters_are_refused(
    counting: TableToolEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_MAX_CHARACTERS", 60)
    result = await counting.call(make_tool_use("query_table", tables={"t": "q3.csv"}))
    assert result == snapshot(
        "ERROR These tables have more than 60 characters. Query fewer lines per call, such as q3.csv:1-10000."
    )
    assert (await counting.call(make_tool_use("query_table", tables={"t": "q3.csv:1-2"}))).startswith(
        "table t is [q3.csv:1-2]"
    )


async def test_large_results_are_a_page_that_says_how_many_rows_there_are(counting: TableToolEnvironment) -> None:
    many = make_tool_use(
        "query_table", tables={"t": "q3.csv"}, sql="SELECT range, repeat('x', 90) AS x FROM range(5000)"
    )
    result = await counting.call(many, window=2_000)
    shown = result.count("xxx |")
    assert len(result) < 2_000 * 4 // 6 + 200
    assert f"5,000 rows, the first {shown} shown; filter" in result
    wide = await counting.call(make_tool_use("query_table", tables={"t": "wide.csv"}), window=2_000)
    assert len(wide) < 2_000 * 4 // 6 + 200
