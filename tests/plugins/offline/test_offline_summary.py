import json
import re

import pytest

from waystation.plugins.offline.agent_request import NOTHING_NEW, STALLED
from waystation.plugins.offline.summary import build_summary_response

ASK = "Write a summary of 100 to 300 tokens."


def prompt(*entries: str, earlier: str = "") -> str:
    record = f"[m2 user] <earlier_conversation>\n{earlier}\n</earlier_conversation>\n" if earlier else ""
    entry_lines = "\n".join(entries)
    return f"<conversation>\n{record}{entry_lines}\n</conversation>\n{ASK}"


def note(number: int, text: str = "It is due in May.") -> tuple[str, str]:
    given = {"text": text, "document": "lease.md", "first_line": number, "last_line": number}
    return (
        f"[m{number} assistant calls take_note] {json.dumps(given)}",
        f"[m{number} result of take_note] note {number} kept",
    )


STORY = "\n".join(
    f"{line}| Gate {line} of harbour {line * 7} stays closed while inspector {line * 3} counts." for line in range(40)
)
READ = (
    '[m3 assistant calls read_document] {"name": "lease.md", "first_line": 1, "last_line": 40}',
    f"[m4 result of read_document] lease.md, lines 1-40 of 90\n{STORY}",
)


def test_a_summary_keeps_what_was_asked_read_searched_and_noted() -> None:
    text = build_summary_response(
        prompt(
            "[m1 user] Do not fix /srv/app/main.py just yet. Error E-417 is known.",
            '[m2 assistant calls search_documents] {"query": "lease rent", "limit": 40}',
            "[m2 result of search_documents] [lease.md:1-12]\nThe rent is due.",
            *READ,
            *note(5),
        ),
        2_000,
    ).text
    assert "Asked: Do not fix /srv/app/main.py just yet.; Error E-417 is known." in text
    assert "Searches: lease rent" in text
    assert "Documents read: lease.md, lines 1-40" in text
    assert "note [lease.md:5-5] It is due in May." in text


def test_an_earlier_summary_is_carried_on() -> None:
    earlier = "Searches: rent\nDocuments read: a.md, lines 1-9\nLast actions: gone"
    text = build_summary_response(prompt(*READ, *note(5), earlier=earlier), 2_000).text
    assert "Documents read: a.md, lines 1-9; lease.md, lines 1-40" in text
    assert "Searches: rent" in text
    assert "gone" not in text
    assert NOTHING_NEW not in text


def test_two_parts_without_anything_kept_are_called_a_standstill() -> None:
    once = build_summary_response(prompt(*READ, earlier="Searches: rent"), 2_000).text
    assert NOTHING_NEW in once
    assert STALLED in build_summary_response(prompt(*READ, earlier=once), 2_000).text


@pytest.mark.parametrize("max_tokens", [60, 2_000])
def test_a_summary_stays_within_what_was_asked_for(max_tokens: int) -> None:
    notes = [line for number in range(5, 60) for line in note(number, f"Clause {number} ends in May.")]
    reply = build_summary_response(prompt(*READ, *notes), max_tokens)
    assert min(100, max_tokens) * 0.5 < reply.tokens <= min(300, max_tokens)


def test_refusals_and_sections_are_recorded() -> None:
    text = build_summary_response(
        prompt(
            *READ,
            "[m7 result of read_document] There is no document 'x.md'. Did you mean a.md?",
            '[m8 assistant calls write_section] {"heading": "Rent", "markdown": "- due"}',
            "[m8 result of write_section] section 2 kept: Rent",
        ),
        2_000,
    ).text
    assert "Failed: read_document: There is no document 'x.md'. Did you mean a.md?" in text
    assert "section 2 kept: Rent" in text


def test_text_in_no_known_form_is_condensed_too() -> None:
    assert (
        "rent is due" in build_summary_response("The rent is due in May, and the deposit before that. " * 3, 2_000).text
    )


def test_the_marker_of_a_place_is_no_key_sentence() -> None:
    page = (
        "1| [chapter Why the gates of the harbour stayed closed]\n2| Inspectors counted the gates of the old harbour."
    )
    text = build_summary_response(
        prompt("[m1 user] Begin.", READ[0], f"[m4 result of read_document] {page}"), 1_000
    ).text
    assert "- Inspectors counted the gates of the old harbour." in text
    assert "chapter" not in text


PARTS = (
    "overall_goal",
    "constraints",
    "key_knowledge",
    "file_system_state",
    "recent_actions",
    "current_plan",
)


def test_a_snapshot_says_the_same_in_its_parts() -> None:
    asked = "[m1 user] Find every gate."
    text = build_summary_response(prompt(asked, *READ, *note(5)), 2_000, snapshot=True).text
    assert text.startswith("<state_snapshot>\n<overall_goal>\nAsked: Find every gate.\n</overall_goal>\n")
    assert "<file_system_state>\nDocuments read: lease.md, lines 1-40\n</file_system_state>" in text
    assert "<current_plan>\n[DONE] Kept: note [lease.md:5-5] It is due in May.\n</current_plan>" in text
    assert re.findall(r"<(\w+)>", text) == ["state_snapshot", *PARTS]
    assert re.findall(r"</(\w+)>", text) == [*PARTS, "state_snapshot"]


def test_an_earlier_snapshot_is_carried_on_by_the_next() -> None:
    first = build_summary_response(prompt("[m1 user] Find every gate.", *READ, *note(5)), 2_000, snapshot=True).text
    later = f"[m9 result of read_document] annex.md, lines 1-40 of 40\n{STORY}"
    text = build_summary_response(prompt(later, *note(7), earlier=first), 2_000, snapshot=True).text
    assert "Documents read: lease.md, lines 1-40; annex.md, lines 1-40" in text
    assert "[DONE] Kept: note [lease.md:5-5] It is due in May.; note [lease.md:7-7] It is due in May." in text
    assert text.count("<state_snapshot>") == 1


def test_summaries_of_parts_are_joined_without_calling_that_a_standstill() -> None:
    first, second = (build_summary_response(prompt("[m1 user] Begin.", *READ, *note(n)), 2_000).text for n in (5, 7))
    parts = "\n".join(f"<earlier_conversation>\n{text}\n</earlier_conversation>" for text in (first, second))
    text = build_summary_response(f"{ASK}\n<conversation>\n{parts}\n</conversation>", 2_000).text
    assert "note [lease.md:5-5] It is due in May.; note [lease.md:7-7] It is due in May." in text
    assert NOTHING_NEW not in text
