"""Who is a person: in code, logs and comments a capital says nothing; who wrote them is found all the same."""

import re

import pytest

from waystation.plugins.redaction.detections import Detection
from waystation.plugins.redaction.people import filter_person_names
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination

NO_PERSON = (
    "Iterate over a WeakSet without it changing beneath.",
    "Convert an arbitrary string to a standard distribution name.",
    "Detach pollers, wait for handlers, continue-as-new with built args",
    "# Convert the dictionary of bind parameter values\n# into a dict or list",
    "# Brackets: [name] -> name\n# Backticks: `name` -> name",
    "# Hugging Face's cross-attention where past_v is used directly as value",
    "Args:\n  grpc_grace: Grace period for gRPC connection close. Default: None",
    "2026-11-22 10:00:01 ERROR Serializer refused Workspace: Max string recursion exceeded",
    "from wasabi import Printer, msg\nfrom http.cookies import Morsel\n",
    "Include Host header, and optionally Content-Length or Transfer-Encoding.",
    "Convert Tcl_Obj to True or False.",
    "buttons: Frame\n    (no assignment): Button (ok)\n    (no assignment): Button (apply)\n",
)


async def test_a_word_of_code_and_its_manuals_is_no_person(redactor: PresidioRedactor) -> None:
    results = await redactor.redact(NO_PERSON, TextDestination.COMPRESSED, "t")
    shown = {text: one.text for text, one in zip(NO_PERSON, results, strict=True)}
    assert {text: one for text, one in shown.items() if "<PERSON" in one} == {}


IN_CODE = {
    "# Written by Hye-Shik Chang <perky@FreeBSD.org>\n#\nimport _codecs_iso2022, codecs": "Hye-Shik Chang",
    "# Copyright (c) 2013-2026, John McNamara, jmcnamara@cpan.org\nfrom xlsxwriter import xmlwriter": "McNamara",
    ".. moduleauthor:: Pierre Gerard-Marchant\n.. moduleauthor:: Jarrod Millman\n": "Jarrod Millman",
    "def f(x):\n    # Mrs Smith asked for this_case\n    return x": "Smith",
    "2026-11-22 10:00:01 INFO user Kowalski logged in from_host=a1": "Kowalski",
    "Tests for the unicodedata module.\n\nWritten by Marc-Andre Lemburg (mal@lemburg.com).": "Lemburg",
    "# Raymond Hettinger asked for this.\nclass Counter(dict):\n    pass": "Raymond Hettinger",
    "Yesterday Zhabotinskyi called, and the meeting is off.": "Zhabotinskyi",
    "Our neighbour, Mr. Baker, came by after lunch.": "Baker",
    "{'customer': 'John Smith'}": "John Smith",
    "INSERT INTO customers VALUES (7, 'Rafael Ortega');": "Rafael Ortega",
    "assert user.name == 'John Smith'": "John Smith",
    "rows = [('John Smith', 'Maria Gonzalez')]": "Maria Gonzalez",
}


async def test_a_person_is_found_in_code_too(redactor: PresidioRedactor) -> None:
    results = await redactor.redact([*IN_CODE], TextDestination.COMPRESSED, "t")
    shown = {text: one.text for text, one in zip(IN_CODE, results, strict=True)}
    missed = {text: one for text, one in shown.items() if IN_CODE[text] in one or "<PERSON_" not in one}
    assert missed == {}


CODE = "value_of = read(config)  # {} is here\n"
PROSE = "At lunch we spoke of {} for a while, and of the weather.\n"


IN_CODE_AND_PROSE = {
    "Xylander": (False, True),
    "Alice": (True, True),
    "Hettinger Raymond": (True, True),
    "Oleksiy Zhabotinskyi": (True, True),
    "K. A. Semendyayev": (True, True),
    "Mark Hammond": (True, True),
    "Mark Young": (True, True),
    "Grace Period": (False, True),
    "Visual Studio": (False, False),
    "Insert ELEMENTS": (False, False),
    "Iterate": (False, False),
    "Multiline": (False, False),
    "Gérard": (True, True),
    "Иванов": (True, True),
}
"""By a name, whether it is found in a line of code and in one of prose."""


def test_what_a_name_must_have() -> None:
    assert {name: (found(CODE, name), found(PROSE, name)) for name in IN_CODE_AND_PROSE} == IN_CODE_AND_PROSE


@pytest.mark.parametrize(
    "frame", ["[10:15:30] {}: good morning", "At GitHub we met {} again.", "(Ronald McDonald, {})"]
)
def test_a_chat_and_the_name_of_a_product_are_no_code(frame: str) -> None:
    assert found(frame, "Xylander")


def found(frame: str, name: str) -> bool:
    text = frame.format(name)
    return bool(list(filter_person_names(text, [person(text, name)])))


def person(text: str, name: str, after: int = 0) -> Detection:
    start = text.index(name, after)
    return Detection("PERSON", start, start + len(name), 0.85)


def test_a_name_that_is_sure_in_one_place_is_so_in_all() -> None:
    text = "# Author: Tilo Xylander\nx_y = 1  # Xylander says so\nz_y = 2  # ask Xylander\n"
    names = [person(text, "Tilo Xylander"), person(text, "Xylander", 30), person(text, "Xylander", 55)]
    assert {text[one.start : one.end] for one in filter_person_names(text, names)} == {"Tilo Xylander", "Xylander"}
    assert len(list(filter_person_names(text, names))) == len(names)
    assert list(filter_person_names(text, names[2:])) == []


def test_a_verb_before_a_name_stays() -> None:
    text = "Suppose Alice has a key."
    (alice,) = filter_person_names(text, [person(text, "Suppose Alice")])
    assert text[alice.start : alice.end] == "Alice"


async def test_the_people_of_licences_stay_found(redactor: PresidioRedactor) -> None:
    text = (
        "MIT License\n\nCopyright (c) 2007 Lars Gustäbel\nCopyright 2011 by Armin Ronacher.\n\n"
        "Permission is hereby granted, free of charge, to any person obtaining a copy of this software.\n\n"
        "Author: Barry Warsaw\nMaintainer: Ezio Melotti\n"
    )
    (result,) = await redactor.redact([text], TextDestination.COMPRESSED, "t")
    assert not re.findall("Gustäbel|Ronacher|Warsaw|Melotti", result.text)
    assert "Permission is hereby granted" in result.text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The doctor told us that Bill had a stroke.", "Bill"),
        ("After the divorce Mark moved to Leeds.", "Mark"),
        ("Yesterday Jun Tanaka paid the rent.", "Jun Tanaka"),
        ("We asked Dong Chen about the lease.", "Dong Chen"),
        ("The loan officer says that Ling Ma owes the bank a lot of money.", "Ling Ma"),
    ],
)
def test_a_name_that_is_a_word_is_a_name_in_prose(text: str, name: str) -> None:
    start = text.index(name)
    whole = Detection("PERSON", start, start + len(name), 0.85)
    assert list(filter_person_names(text, [whole])) == [whole]


def test_a_known_part_of_a_name_is_one_elsewhere_in_prose() -> None:
    text = "Mark Weidmann is our tenant. The doctor saw Mark."
    finds = [Detection("PERSON", 0, 13, 0.85), Detection("PERSON", text.rindex("Mark"), len(text) - 1, 0.85)]
    assert list(filter_person_names(text, finds)) == finds
