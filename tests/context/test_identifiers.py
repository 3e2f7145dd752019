"""Identifiers in text, by kind."""

import pytest

from waystation.context.constraints import extract_identifiers


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
