"""Private values in names of files: whatever joins them to the words around them, nothing of them is shown."""

import asyncio
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.documents.name_redaction import redact_document_text, redact_names
from waystation.documents.redacted_documents import redact_display_name
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import RedactionPolicy, RedactionResult, TextDestination, get_redaction_level

TENANT = "tenant"
HEX = "0123456789abcdef" * 9
MIXED = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0" * 3
SECRETS = (
    f"sk-ant-api03-{MIXED[:20]}",
    f"sk-proj-{MIXED[:24]}",
    f"sk_live_{MIXED[:20]}",
    f"whsec_{MIXED[:20]}",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAIOSFODNN7EXAMPLE",
    f"ghp_{MIXED[:36]}",
    f"github_pat_{MIXED[:30]}",
    f"glpat-{MIXED[:20]}",
    f"xoxb-123456789012-{MIXED[:16]}",
    f"xapp-1-{MIXED[:20]}",
    f"AIza{MIXED[:35]}",
    f"ya29.{MIXED[:30]}",
    f"GOCSPX-{MIXED[:28]}",
    f"abc8Q~{MIXED[:34]}",
    f"npm_{MIXED[:36]}",
    f"pypi-{MIXED[:60]}",
    f"dckr_pat_{MIXED[:27]}",
    f"hf_{MIXED[:34]}",
    f"gsk_{MIXED[:50]}",
    f"r8_{MIXED[:37]}",
    f"SG.{MIXED[:22]}.{MIXED[:43]}",
    f"key-{HEX[:32]}",
    f"{HEX[:32]}-us12",
    f"dop_v1_{HEX[:64]}",
    f"shpat_{HEX[:32]}",
    f"dapi{HEX[:32]}-2",
    f"hvs.{MIXED[:24]}",
    f"lin_api_{MIXED[:40]}",
    f"pul-{HEX[:40]}",
    f"sqa_{MIXED[:40]}",
    f"sgp_{HEX[:40]}",
    f"ico-{MIXED[:32]}",
    f"test_{HEX[:35]}",
    f"API-{MIXED[:26].upper()}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlX2hlcmU",
    f"$2b$12${MIXED[:53]}",
)
IDENTIFIERS = (
    "alice@example.com",
    "j.doe+x@mail.corp.internal",
    "+1 (415) 555-2671",
    "415-555-2671",
    "+49 170 1234567",
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "378282246310005",
    "DE89370400440532013000",
    "123-45-6789",
    "192.168.1.20",
    "00-1A-2B-3C-4D-5E",
)
JOINTS = ("_", "-", ".", " ", "+", "~", ",", "(", ")", "=", "__", " - ", "/", "#", "&")
ORDINARY = (
    "report_2024-03-12_14-30-22.pdf",
    "invoice-2024-000123456.pdf",
    "IMG_20240312_143022.jpg",
    "v1.2.3-rc4_changelog-2023.md",
    "WAY_10-K_2023_0001065088-24-000045.htm",
    "1403.6652v2.pdf",
    "rfc9110-section-8.3.1.txt",
    "ticket-12345678-logs.txt",
    "kernel-6.1.0-18-amd64.log",
    "3f786850e387550fdab836ed7e6dc881de23001b.json",
    "a0b1c2d3-1234-4abc-8def-0123456789ab.txt",
)


async def shown(
    redactor: PresidioRedactor, *names: str, destination: TextDestination = TextDestination.COMPRESSED
) -> Sequence[str]:
    return await redact_names(names, redactor, TENANT, destination)


@settings(max_examples=60)
@given(
    st.sampled_from([*SECRETS, *IDENTIFIERS]),
    st.sampled_from(["", "old", "backup2", "x", "Q3", "log"]),
    st.sampled_from(["", "copy", "v2", "7", "a"]),
    st.sampled_from(JOINTS),
    st.sampled_from(JOINTS),
    st.sampled_from(["", ".txt", ".pdf", ".eml", ".tar.gz"]),
)
def test_a_private_value_in_a_files_name_is_not_shown_whatever_joins_it(
    redactor: PresidioRedactor, value: str, before: str, behind: str, first: str, second: str, suffix: str
) -> None:
    name = f"{before}{first if before else ''}{value}{second if behind else ''}{behind}{suffix}"
    (called,) = asyncio.run(shown(redactor, name))
    assert value not in called
    longest = max((part for part in value.replace("-", " ").replace("_", " ").split()), key=len)
    assert longest not in called
    assert asyncio.run(shown(redactor, called)) == [called]
    assert longest not in asyncio.run(redact_display_name(name, redactor, TENANT))


async def test_the_words_of_a_persons_name_are_found_whatever_joins_them(redactor: PresidioRedactor) -> None:
    joints, names = ("_", "-", ".", "~", "+", ",", ";", "%20"), ("{}.csv", "contract_{}.md", "notes {}_2024.pdf")
    given = [name.format(f"Ada{joint}Lovelace") for name in names for joint in joints]
    called = dict(zip(given, await shown(redactor, *given), strict=True))
    assert {name: one for name, one in called.items() if "Ada" in one or "Lovelace" in one} == {}


async def test_a_files_name_without_private_values_stays(redactor: PresidioRedactor) -> None:
    called = await shown(redactor, *ORDINARY)
    assert dict(zip(ORDINARY, called, strict=True)) == {name: name for name in ORDINARY}


PASSWORD = "Tr0ub4dorjeKkOG"
AWS, GITHUB = "AKIAQ3EGPV2XKZ7BNMWT", f"ghp_{MIXED[:36]}"
CALLED_SECRETS = (
    f"Pass-{PASSWORD}.txt",
    f"api_key_{PASSWORD}_prod.txt",
    f"secret-{PASSWORD}.md",
    f"api-key-{PASSWORD}.md",
    f"apikey {PASSWORD}.md",
    f"password-{PASSWORD}.md",
    f"creds.{PASSWORD}.md",
    f"Key({PASSWORD}).md",
    f"login_bob_{PASSWORD}.md",
    f"pw%20{PASSWORD}.md",
    f"secret__{PASSWORD}.tar.gz",
)
GLUED = (f"Backup{AWS}.md", f"{AWS}Backup.md", f"BACKUP{AWS}.md", f"old{AWS}backup.md", f"{AWS}2024.md")
OF_SECRETS = (
    "password-policy-2024.pdf",
    "token-usage-2024-05.csv",
    "secret-santa-2024.docx",
    "Pass-2024q3report.pdf",
    "api-key-v2rotation.md",
    "keynote_2024_v3.key",
    "tokens-2024-03-12_14-30-22.json",
    "keys_k8s_e2e.md",
    "secret-sharing-rfc8017.txt",
    "Passkeys-FIDO2-WebAuthn-L3.pdf",
    "bypass-road-A14.pdf",
    "SLOVAKIANATIONALCHAMPIONSHIP.pdf",
    "secret-<SECRET_0123456789ab>.md",
)


async def test_what_a_word_of_the_name_says_to_be_a_secret_is_one_whatever_joins_them(
    redactor: PresidioRedactor,
) -> None:
    called = dict(zip(CALLED_SECRETS, await shown(redactor, *CALLED_SECRETS), strict=True))
    assert {name: one for name, one in called.items() if PASSWORD[4:9] in one} == {}
    assert list(await shown(redactor, *called.values())) == list(called.values())


async def test_a_key_that_is_glued_to_a_word_is_found(redactor: PresidioRedactor) -> None:
    names = [*GLUED, f"backup{GITHUB}.md"]
    called = dict(zip(names, await shown(redactor, *names), strict=True))
    assert {name: one for name, one in called.items() if AWS[4:12] in one or MIXED[4:12] in one} == {}


async def test_a_name_that_speaks_of_secrets_stays(redactor: PresidioRedactor) -> None:
    called = await shown(redactor, *OF_SECRETS)
    assert dict(zip(OF_SECRETS, called, strict=True)) == {name: name for name in OF_SECRETS}


async def test_a_folder_is_a_part_of_the_name(redactor: PresidioRedactor) -> None:
    (called,) = await shown(redactor, "Ada Lovelace/ghp_abcdefghijklmnopqrstuvwxyz012345/contract.docx")
    assert called.startswith("<PERSON_")
    assert "ghp" not in called
    assert called.endswith("/contract.docx")


MARKERS = ("[sheet old{}{}{}copy]", "[page 2 of attachment x{}{}{}2.pdf]", "[attachment {}{}{}b.csv]")


async def test_a_private_value_in_the_name_of_a_sheet_or_an_attachment_goes_and_the_lines_stay(
    redactor: PresidioRedactor,
) -> None:
    values, wrong = [*SECRETS[4:7], *IDENTIFIERS[-3:], "Ada_Lovelace"], dict[str, str]()
    for marker, joint, value in product(MARKERS, "_-", values):
        named = marker.format(joint, value, joint)
        text = f"Costs.\n\n{named}\na | b\n[page 3]\nThe end.\n"
        shown = (await redact_document_text(text, redactor, TENANT, TextDestination.COMPRESSED)).text
        stays = shown.count("\n") == text.count("\n") and shown.endswith("\na | b\n[page 3]\nThe end.\n")
        if value in shown or not stays:
            wrong[named] = shown
    assert wrong == {}


@pytest.mark.parametrize("policy", RedactionPolicy)
def test_the_last_look_before_memory_is_for_secrets_and_identifiers(policy: RedactionPolicy) -> None:
    assert get_redaction_level(TextDestination.EMBEDDED, policy) <= get_redaction_level(
        TextDestination.COMPRESSED, policy
    )


IN_PROSE = (
    "Margaret_Hamilton.xlsx",
    "Quoted above already: prices.csv, Margaret_Hamilton",
    "The offer in `Margaret_Hamilton.xlsx` is lower.",
    "It lies in /srv/hr/Margaret_Hamilton.xlsx now.",
    *(
        f"See letter{joint}Margaret{joint}Hamilton{joint}2024.docx, page 3."
        for joint in ("_", "-", ".", "~", "+", "%20")
    ),
    "See Hamilton,Margaret.docx",
    "See MargaretHamilton.docx",
    "Sources: Margaret-Hamilton, Margaret.Hamilton",
)


async def test_a_name_of_a_file_in_prose_is_read_with_blanks_for_its_joints(redactor: PresidioRedactor) -> None:
    found = [one.text for one in await redactor.redact(IN_PROSE, TextDestination.COMPRESSED, TENANT)]
    named = {text: one for text, one in zip(IN_PROSE, found, strict=True) if "Margaret" in one or "Hamilton" in one}
    assert named == {}
    again = await redactor.redact(found, TextDestination.COMPRESSED, "another")
    assert dict(zip(found, again, strict=True)) == {text: RedactionResult(text=text) for text in found}


async def test_joined_and_plain_words_of_a_name_have_one_placeholder(redactor: PresidioRedactor) -> None:
    found = await redactor.redact(
        ["I met Margaret Hamilton there.", "Margaret_Hamilton.xlsx"], TextDestination.COMPRESSED, TENANT
    )
    assert len({span.placeholder for one in found for span in one.spans}) == 1


async def test_identifiers_of_programs_are_no_names(redactor: PresidioRedactor) -> None:
    text = (
        "READ_ME __init__ Content-Type Foo_Bar Read_Me.txt User_Agent X-Forwarded-For Set-Cookie Client/Server "
        "Hodgkin-Huxley Foo_Bar.py Test_Case.java Java.Util My_Class Http_Server ReadMe.txt JavaScript.pdf Max_Retries "
        "Annual_Report_Final.pdf Meeting_Notes.md Quarterly-Results.pdf Terms_Of_Service.html America/New_York"
    )
    (found,) = await redactor.redact([text], TextDestination.COMPRESSED, TENANT)
    assert found.text == text
