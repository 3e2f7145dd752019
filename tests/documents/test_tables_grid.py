import pytest

from waystation.documents.table_engine.engine import TableEngineError
from waystation.documents.table_engine.grid import MAX_COLUMNS, QueryableTable, build_queryable_table, read_grid
from waystation.documents.tables import TableText
from waystation.privacy.policy import ReplacedRange


def cells(found: QueryableTable) -> list[tuple[str, ...]]:
    return [tuple(column.values[code] for code in column.codes) for column in found.columns]


def seen(text: str, *, first_line: int = 1, heading: bool = True, sheet: bool = False) -> QueryableTable:
    return build_queryable_table(
        read_grid(TableText(name="t", text=text, first_line=first_line, heading=heading, sheet=sheet))
    )


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " | "])
def test_cells_are_found_whatever_separates_them(separator: str) -> None:
    rows = [("region", "amount"), ("North", "1.5"), ("South", "2.5")]
    found = seen("\n".join(separator.join(row) for row in rows))
    assert (found.names, cells(found)) == (["region", "amount"], [("North", "South"), ("1.5", "2.5")])


def test_commas_within_numbers_do_not_separate_cells_where_semicolons_do() -> None:
    assert seen("Land;Preis, netto\nNord;1,50\nSüd;2,75").names == ["Land", "Preis, netto"]


def test_rows_know_their_lines_over_blank_ones_and_cells_of_several_lines() -> None:
    assert seen('a,b\n\n1,"two\nlines"\n\n3,4', first_line=10).lines == (12, 15)


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert seen("\ufeffa,b\n1,2").names == ["a", "b"]


def test_names_that_come_twice_are_missing_or_belong_to_us_are_made_different() -> None:
    assert seen("a,A,,_line,a\n1,2,3,4,5").names == ["a", "A_2", "column_3", "_line_2", "a_3"]


def test_a_table_without_a_heading_keeps_its_first_row() -> None:
    found = seen("1,2\n3,4", heading=False)
    assert (found.names, cells(found), found.lines) == (["column_1", "column_2"], [("1", "3"), ("2", "4")], (1, 2))


def test_ragged_rows_lose_nothing_and_are_told() -> None:
    found = seen("a,b\n1,2,extra\n3\n4,5")
    assert cells(found) == [("1", "3", "4"), ("2", "", "5"), ("extra", "", "")]
    assert found.names == ["a", "b", "column_3"]
    assert found.cautions == [
        "t: 1 row (line 2) with more cells than the first row; the additional cells are in column 3 and later, "
        "and values may be shifted",
        "t: 1 row (line 3) with fewer cells than the first row; the missing cells are NULL",
    ]


def test_only_some_of_many_ragged_rows_are_named() -> None:
    (caution,) = seen("a,b\n" + "1\n" * 9).cautions
    assert caution.startswith("t: 9 rows (lines 2, 3, 4, 5, 6, …) with fewer cells")


def test_a_sheet_is_cut_between_its_cells_only_whatever_they_hold() -> None:
    found = seen('name | note\nSmith, J | a|b\n | "quoted\n', sheet=True)
    assert cells(found) == [("Smith, J", ""), ("a|b", '"quoted')]
    assert cells(seen("name\nSmith, John", sheet=True)) == [("Smith, John",)]


def test_the_line_below_the_heading_of_a_markdown_table_is_no_row() -> None:
    found = seen("| a | b |\n|---|:---:|\n| 1 | 2 |")
    assert [*zip(found.names, cells(found), strict=True)][1:3] == [("a", ("1",)), ("b", ("2",))]


def test_a_heading_alone_is_a_table_of_no_rows() -> None:
    found = seen("a,b")
    assert (found.names, cells(found)) == (["a", "b"], [(), ()])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "t has no rows"),
        ("\n \n", "t has no rows"),
        ("a,b\n1,\0", "t is not text: line 2 has a NUL character"),
        ('a,b\n1,2\n1,"never closed\n3,4', "begins on line 3 cannot be read"),
        ('a,b\n1,"closed" early', "begins on line 2 cannot be read"),
        ("a,b\n1," + "x" * 200_000, "a cell is too long"),
        ("a,b\n1,2\n" + "x," * MAX_COLUMNS, f"Line 3 of t has {MAX_COLUMNS + 1} cells"),
        ("x," * 400 + "\n" + "1,2\n" * 50_000, "t has more than 20,000,000 cells"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(TableEngineError, match=reason):
        seen(text)


def hidden(text: str, *values: str, sheet: bool = False) -> list[tuple[str, str, str]]:
    """Of each column the values with something hidden, what that is, and its placeholder."""
    found = [ReplacedRange(text.index(one), text.index(one) + len(one), "T", f"<T_{one}>") for one in values]
    table = read_grid(TableText(name="t", text=text, hidden=tuple(found), sheet=sheet))
    return [
        (column.values[place], column.values[place][one.start : one.end], one.placeholder)
        for column in table.columns
        for place, each in sorted(column.hidden.items())
        for one in each
    ]


def test_what_is_hidden_of_a_text_is_hidden_of_its_cells() -> None:
    assert hidden("\ufeffname,key\nana,pw1\nben,a pw2 b", "name", "pw1", "pw2") == [
        ("name", "name", "<T_name>"),
        ("pw1", "pw1", "<T_pw1>"),
        ("a pw2 b", "pw2", "<T_pw2>"),
    ]
    assert hidden("| a | b |\n|---|---|\n| 1 | pw1 |", "pw1") == [("pw1", "pw1", "<T_pw1>")]
    assert hidden('a | b\n"x" | a|pw1', "pw1", sheet=True) == [("a|pw1", "pw1", "<T_pw1>")]


def test_hidden_stretches_keep_their_place_behind_doubled_quotation_marks_and_line_ends() -> None:
    text = 'a,b\n1,"x ""pw1"" ""y\nz pw2"\n\n2,pw3'
    cell = 'x "pw1" "y\nz pw2'
    assert hidden(text, "pw1", "pw2", "pw3") == [
        (cell, "pw1", "<T_pw1>"),
        (cell, "pw2", "<T_pw2>"),
        ("pw3", "pw3", "<T_pw3>"),
    ]
    assert hidden(text, 'y\nz pw2"\n') == [(cell, "y\nz pw2", "")]


def test_what_is_hidden_over_several_cells_has_no_placeholder_in_any_of_them() -> None:
    assert hidden("a,b,c\nLovelace, Ada,3\n1,2,4", "Lovelace, Ada") == [
        ("Lovelace", "Lovelace", ""),
        (" Ada", " Ada", ""),
    ]
    assert hidden("a,b\n1,KEY\nEND,2", "KEY\nEND") == [("END", "END", ""), ("KEY", "KEY", "")]


def test_the_line_that_tells_excel_the_separator_is_no_row() -> None:
    for said in ("sep=;", '"sep=;"', "SEP=;"):
        found = seen(f"{said}\nname;amount\npump;12,5\nvalve;30\n")
        assert (found.names, cells(found), found.lines) == (
            ["name", "amount"],
            [("pump", "valve"), ("12,5", "30")],
            (3, 4),
        )
        assert found.cautions == []


def test_quotation_marks_behind_backslashes_are_read_where_doubled_ones_are_not() -> None:
    found = seen('id,comment,amount\n1,"he said \\"no\\" to it, twice",12\n2,"fine",30\n')
    assert cells(found) == [("1", "2"), ('he said "no" to it, twice', "fine"), ("12", "30")]
    assert cells(seen('a,b\n1,"C:\\"\n2,"x ""y"""\n')) == [("1", "2"), ("C:\\", 'x "y"')]


def test_blanks_behind_commas_belong_to_no_cell() -> None:
    found = seen('id, name, note\n1, "Doe, Jane", "x"\n2, Ann, y\n')
    assert (found.names, cells(found)) == (["id", "name", "note"], [("1", "2"), ("Doe, Jane", "Ann"), ("x", "y")])
    assert seen("id,note\n1, kept\n2,x\n").columns[1].values[1] == " kept"


@pytest.mark.parametrize(
    "preamble", ["Report of Q3\n\n", "Report of Q3\nGenerated: 2024-01-01, 12:00\n", "a note\n\n\nmore\n"]
)
def test_lines_above_the_heading_are_no_rows_and_are_told(preamble: str) -> None:
    table = "name,amount,unit,site\npump,12,a,b\nvalve,30,c,d\nhose,7,e,f\n"
    found = seen(preamble + table)
    above = preamble.count("\n")
    assert (found.names, found.lines) == (["name", "amount", "unit", "site"], (above + 2, above + 3, above + 4))
    (caution,) = found.cautions
    assert caution.startswith(f"t: lines 1-{above}, above the heading, are not read as part of the table")


def test_a_heading_that_is_shorter_than_its_rows_is_no_preamble() -> None:
    assert seen("a,b,c\n1,x,2,9\n2,y,3,9\n").names[:3] == ["a", "b", "c"]
    assert seen("name\npump\nvalve\n").names == ["name"]


def test_what_is_hidden_stays_so_in_every_dialect() -> None:
    assert hidden('a, b\n1, "x pw1, y"\n2, pw2\n', "pw1", "pw2") == [
        ("x pw1, y", "pw1", "<T_pw1>"),
        ("pw2", "pw2", "<T_pw2>"),
    ]
    assert hidden("sep=;\na;b\n1;pw1\n", "pw1") == [("pw1", "pw1", "<T_pw1>")]
    escaped = 'a,b\n1,"x \\"pw1\\" y"\n2,pw2\n'
    assert hidden(escaped, "pw1", "pw2") == [('x "pw1" y', 'x "pw1" y', ""), ("pw2", "pw2", "<T_pw2>")]
