"""Identifiers in text, by kind."""

import pytest

from tests.support.conversations import make_result_message, make_text_message
from waystation.context.constraints import extract_identifiers, find_rereadable_identifiers
from waystation.context.summary import build_summary_message
from waystation.context.transcript import Message, ToolUse, build_user_message


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("as [audit 2024.md:12-15] says", "citations", ["[audit 2024.md:12-15]"]),
        ("see https://example.org/a?b=1, please", "URLs", ["https://example.org/a?b=1"]),
        ("in /etc/hosts, ./run.sh and src/app/main.py.", "paths", ["/etc/hosts", "./run.sh", "src/app/main.py"]),
        (r"in C:\logs\today.txt", "paths", [r"C:\logs\today.txt"]),
        ("and/or, 1/2 </ledger> https://example.org/x", "paths", []),
        ("ENOENT, E1024, ERR_TOO_LONG, ValueError, ABC-123", "codes",
         ["ENOENT", "E1024", "ERR_TOO_LONG", "ValueError", "ABC-123"]),
        ("id 3f2b6c1e-aaaa-4bbb-8ccc-1234567890ab", "ids", ["3f2b6c1e-aaaa-4bbb-8ccc-1234567890ab"]),
        ("at 9fceb02 and 0123456789ab, a decade of 1234567890", "ids", ["9fceb02", "0123456789ab"]),
        ("[t-0a1b2c3d4e5f60718293 user] a compaction of ours", "ids", []),
        ("$1,250.50 or 12.5 % of 3.75, port 8080, in 2024", "figures", ["$1,250.50", "12.5 %", "3.75", "8080", "2024"]),
        ("3 of 12 people", "figures", []),
    ],
)  # fmt: skip
def test_identifiers_are_found_by_kind(text: str, kind: str, found: list[str]) -> None:
    assert list(extract_identifiers(text)[kind]) == found[::-1]


@pytest.mark.parametrize("piece", ["a", "/", "a/", "A_", "1,", "1.", "[a", "E", "0-", "https://"])
def test_in_a_huge_line_the_identifier_at_its_end_is_found(piece: str) -> None:
    assert "/srv/log/tax.log" in extract_identifiers(f"{piece * (500_000 // len(piece))} /srv/log/tax.log")["paths"]


def test_the_most_mentioned_comes_first_and_of_equals_the_newest() -> None:
    found = extract_identifiers("/old/one /twice/told /new/one /twice/told /newest/one")["paths"]
    assert [path for path, _ in found.most_common()] == ["/twice/told", "/newest/one", "/new/one", "/old/one"]


def _call(message_id: str, call_id: str, tool: str, value: str) -> Message:
    return Message(id=message_id, role="assistant", blocks=(ToolUse(id=call_id, name=tool, input={"value": value}),))


def test_an_identifier_of_a_document_is_rereadable_unless_a_person_said_it_or_a_ledger_has_it() -> None:
    messages = [
        build_user_message("m1", "Is 1,111 right?"),
        build_summary_message("x", "Of 2,222.\n\n<ledger>\nfigures: 3,333\n</ledger>"),
        _call("m2", "c1", "read_document", "a.md"),
        make_result_message("m3", c1="1,111 and 2,222 and 3,333 and 4,444 by ENOENT"),
        make_text_message("m4", "It is 4,444, and I compute 5,555."),
        _call("m5", "c2", "run_query", "SELECT 1"),
        make_result_message("m6", c2="6,666"),
    ]
    assert find_rereadable_identifiers(messages, messages, {"read_document"}) == {"2,222", "4,444", "ENOENT"}


def test_citations_addresses_and_paths_that_the_agent_wrote_are_kept_though_a_document_has_them() -> None:
    messages = [
        _call("m2", "c1", "search_documents", "silt"),
        make_result_message("m3", c1="[a.md:1-2] at https://example.org/a and https://example.org/b\n[a.md:3-4] Silt."),
        make_text_message("m4", "It stands in [a.md:3-4]."),
        _call("m5", "c2", "fetch", "https://example.org/a"),
    ]
    found = find_rereadable_identifiers(messages, messages, {"search_documents"})
    assert found == {"[a.md:1-2]", "https://example.org/b"}


def test_a_document_read_before_an_earlier_compaction_still_counts() -> None:
    read = [_call("m2", "c1", "read_document", "a.md"), make_result_message("m3", c1="4,444")]
    said = make_text_message("m4", "It is 4,444.")
    assert find_rereadable_identifiers([*read, said], [said], {"read_document"}) == {"4,444"}
