from collections.abc import Sequence
from pathlib import Path

import pytest

from waystation.documents.table_engine.database import CELL_CHARACTERS, ROWS_CHARACTERS, answer_query
from waystation.documents.table_engine.engine import EngineRequest, TableEngineError
from waystation.documents.table_engine.grid import read_grid
from waystation.documents.tables import QueryResult, TableText


def ask(sql: str, *tables: TableText, most_rows: int = 10) -> QueryResult:
    return answer_query(EngineRequest(sql=sql, tables=tuple(map(read_grid, tables)), max_rows=most_rows))


def table(*rows: str, name: str = "t") -> TableText:
    return TableText(name=name, text="\n".join(rows))


def type_of(*values: str) -> str:
    return ask("FROM t", table("a;b", *(f"{value};x" for value in values))).columns[0].type


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", "+3", ""], "BIGINT"),
        (["999999999999999999"], "BIGINT"),
        (["9999999999999999999"], "DECIMAL(38,0)"),
        (["1", "2.50", ".5", "-10.125"], "DECIMAL(18,3)"),
        (["12345678901234567890.12"], "DECIMAL(38,2)"),
        (["1" * 39], "DOUBLE"),
        (["1e5", "2.5"], "DOUBLE"),
        (["true", "FALSE"], "BOOLEAN"),
        (["2026-01-31", "2024-02-29"], "DATE"),
        (["2026-01-31 10:00", "2026-01-31T10:00:01.5"], "TIMESTAMP"),
        (["007", "008"], "VARCHAR"),
        (["2026-02-30"], "VARCHAR"),
        (["1.234,56"], "VARCHAR"),
        (["1", "n/a"], "VARCHAR"),
        (["", ""], "VARCHAR"),
    ],
)
def test_a_column_has_the_narrowest_type_that_takes_its_values_as_written(values: Sequence[str], kind: str) -> None:
    assert type_of(*values) == kind


def test_sums_of_decimals_are_exact() -> None:
    assert ask("SELECT sum(a), sum(a) = 0.6 FROM t", table("a;b", "0.1;x", "0.2;x", "0.3;x")).rows == (("0.6", "true"),)


def test_a_number_with_leading_zeros_is_an_identifier() -> None:
    assert ask("SELECT a FROM t", table("a;b", "007;x")).rows == (("007",),)


def test_empty_cells_are_null_and_spaces_around_cells_do_not_count() -> None:
    rows = ask("SELECT a, b, _line FROM t", table("a,b", " 1 ,", "2, x ")).rows
    assert rows == (("1", None, "2"), ("2", "x", "3"))


def test_tables_are_joined() -> None:
    sales, regions = table("id,amount", "1,5", "2,7", name="sales"), table("id;name", "1;North", name="regions")
    assert ask("SELECT name, amount FROM sales JOIN regions USING (id)", sales, regions).rows == (("North", "5"),)


def test_names_of_columns_are_kept_whatever_they_hold() -> None:
    odd = 'net "amount"; DROP TABLE t'
    result = ask("FROM t", table('"net ""amount""; DROP TABLE t",b', "1,2"))
    assert [column.name for column in result.columns] == [odd, "b", "_line"]


def test_all_rows_are_counted_and_the_first_ones_shown() -> None:
    result = ask("SELECT * FROM range(25000) ORDER BY 1 DESC", most_rows=2)
    assert (result.rows, result.row_count) == ((("24999",), ("24998",)), 25_000)


def test_rows_beyond_counting_are_not_counted() -> None:
    result = ask("SELECT * FROM range(1000000000000)", most_rows=2)
    assert (result.rows, result.row_count) == ((("0",), ("1",)), None)


def test_a_result_of_fifty_megabytes_is_a_few_hundred_characters() -> None:
    ((cell,),) = ask("SELECT repeat('x', 50000000)").rows
    assert cell == "x" * CELL_CHARACTERS + "…"


def test_many_long_rows_end_where_the_result_is_long_enough() -> None:
    result = ask("SELECT " + ", ".join(["repeat('x', 300)"] * 100) + " FROM range(50)", most_rows=50)
    assert (len(result.rows), result.row_count) == (ROWS_CHARACTERS // 30_000 + 1, 50)


def test_values_that_python_cannot_hold_are_text_too() -> None:
    sql = "SELECT INTERVAL 3 DAY, [1, 2], {'a': 1}, TIMESTAMPTZ '2026-01-01 10:00+00', 'nan'::DOUBLE, 2::HUGEINT ** 0.5"
    assert ask(sql).rows == (("3 days", "[1, 2]", "{'a': 1}", "2026-01-01 10:00:00+00", "nan", "1.4142135623730951"),)


def test_names_of_a_result_that_come_twice_do_not_lose_a_column() -> None:
    assert ask("SELECT 1 AS a, 2 AS a").rows == (("1", "2"),)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1, 2, 3)",
        "UPDATE t SET a = 1",
        "DROP TABLE t",
        "CREATE TABLE u AS SELECT 1",
        "ATTACH 'x.db'",
        "COPY t TO 'x.csv'",
        "EXPORT DATABASE 'x'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '9GB'",
        "PRAGMA version",
        "CALL range(3)",
        "COMMIT",
        "SELECT 1; COMMIT",
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
    ],
)
def test_only_one_select_is_carried_out(sql: str) -> None:
    with pytest.raises(TableEngineError, match="A query must be a single SELECT"):
        ask(sql, table("a,b", "1,2"))


def test_a_select_that_writes_is_refused() -> None:
    with pytest.raises(TableEngineError, match="read-only"):
        ask("WITH w AS (INSERT INTO t VALUES (3, 4, 5) RETURNING *) FROM w", table("a,b", "1,2"))


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('{file}')",
        "read_text('{file}')",
        "read_blob('{file}')",
        "sniff_csv('{file}')",
        "glob('{file}')",
        "query('FROM read_text(''{file}'')')",
        "'{file}'",
        "read_csv('http://127.0.0.1:9/x.csv')",
        "'https://127.0.0.1:9/x.csv'",
        "duckdb_secrets()",
    ],
)
def test_files_and_addresses_are_out_of_reach(source: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("a,b\nsecret,1\n")
    with pytest.raises(TableEngineError, match=r"disabled by configuration|does not exist") as refused:
        ask(f"SELECT * FROM {source.format(file=file)}")
    assert "secret,1" not in str(refused.value)


def test_variables_of_the_program_are_no_tables() -> None:
    with pytest.raises(TableEngineError, match="Table with name keys does not exist"):
        ask("FROM keys", table("a,b", "1,2"))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT", "Parser Error"),
        ("SELECT \0", "Error"),
        ("SELECT amount FROM t", "amount"),
        ("FROM nowhere", "nowhere does not exist"),
        ("SELECT CAST(b AS INTEGER) FROM t", "Could not convert"),
        ("SELECT " + "(" * 4_000 + "1" + ")" * 4_000, "depth"),
        ("SELECT error(repeat('x', 1000000))", "Invalid Input"),
    ],
)
def test_what_is_wrong_is_told_in_a_few_words(sql: str, reason: str) -> None:
    with pytest.raises(TableEngineError, match=reason) as refused:
        ask(sql, table("a,b", "1,x"))
    assert len(str(refused.value)) <= 600
