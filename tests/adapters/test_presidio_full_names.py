"""Names that the language model does not see, or sees half of: by lists, and by what stands around them."""

import json

import pytest

from waystation.adapters.presidio.finds import Found
from waystation.adapters.presidio.people import listed_people, named_again, saying_people, stated_people, without_names
from waystation.adapters.presidio.redactor import PresidioRedactor
from waystation.domain.privacy import NAME_TYPES, Place


async def replaced(redactor: PresidioRedactor, text: str) -> list[str]:
    (result,) = await redactor.redact([text], Place.COMPRESSED, "t")
    return [text[span.start : span.end] for span in result.spans if span.type in NAME_TYPES]


def listed(text: str, *, by_all_words: bool = False) -> list[str]:
    found = listed_people(text, 0, len(text), by_all_words=by_all_words)
    return [text[one.start : one.end] for one in found]


def stated(text: str) -> list[str]:
    return [text[one.start : one.end] for one in stated_people(text, 0, len(text))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('User(name="Maria Gonzalez")', ["Maria Gonzalez"]),
        ('customer="Ingrid Solheim"', ["Ingrid Solheim"]),
        ("# TODO(Ada Lovelace): fix", ["Ada Lovelace"]),
        ("User(name='Tamsin Archer', age=41)", ["Tamsin Archer"]),
        ('assert greet("Kirill Romanov") == "hello"', ["Kirill Romanov"]),
        ("Siobhan Keane promised to send the draft by Friday.", ["Siobhan Keane"]),
        ("Petra Lindqvist promised to call back.", ["Petra Lindqvist"]),
        ("Tomasz Kowalczyk", ["Tomasz Kowalczyk"]),
        ("Björk Guðmundsdóttir sang.", ["Björk Guðmundsdóttir"]),
        ("Nguyễn Thị Minh called.", ["Nguyễn Thị Minh"]),
        ("We met Anne-Marie van der Berg in the lobby.", ["Anne-Marie van der Berg"]),
        ("Yesterday Omar al-Farsi signed.", ["Omar al-Farsi"]),
        ("Maria Gonzalez paid. Later Gonzalez asked for the receipt.", ["Maria Gonzalez", "Gonzalez"]),
    ],
)
async def test_a_name_is_replaced_as_a_whole(redactor: PresidioRedactor, text: str, names: list[str]) -> None:
    assert await replaced(redactor, text) == names


@pytest.mark.parametrize(
    "text",
    [
        "Bill the customer for two hours.",
        "Rob the bank and run.",
        "Pat the dough dry.",
        "Ray tracing is slow.",
        "Mark all messages as read.",
        "Hunt for the slowest query first.",
        "We use Dijkstra's algorithm here.",
        "Gaussian noise is added.",
        "The Fourier transform of the signal.",
        "An implementation of Tarjan's algorithm.",
        "It condenses below the Bose-Einstein transition.",
        "Fix the Havel-Hakimi graph generators.",
        "Markov chains and Euler angles are in the Jordan form.",
        "We moved from Travis CI to Jenkins.",
        "Open a ticket in Jira.",
        "Jira is down.",
    ],
)
async def test_what_only_looks_like_a_name_stays(redactor: PresidioRedactor, text: str) -> None:
    assert await replaced(redactor, text) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Bill paid the customer.", "Bill"),
        ("In the end Bill the plumber came.", "Bill"),
        ("Frank Miller promised to call.", "Frank Miller"),
        ("Anna's algorithm failed yesterday.", "Anna"),
        ("Kowalczyk's method failed yesterday.", "Kowalczyk"),
    ],
)
async def test_a_person_who_is_called_like_a_word_or_has_a_method_is_one(
    redactor: PresidioRedactor, text: str, name: str
) -> None:
    assert await replaced(redactor, text) == [name]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Asked Jean-Luc de la Cruz about it", ["Jean-Luc de la Cruz"]),
        ("with Akash Agrawal on call", ["Akash Agrawal"]),
        ("by Laura W. Dekker and J. Newman", ["Laura W. Dekker"]),
        ("met Wayne's Rooney", []),
        ("the Ada Lovelace Institute", []),
        ("at Petra Lindqvist Street", []),
        ("from Maria Park and Anna K. Hall", ["Maria Park", "Anna K. Hall"]),
        ("in San Francisco", []),
        ("of the New York Stock", []),
        ("Santa Fe, Rio Nalon, Nova Scotia", []),
        ("Kubernetes Martinez", []),
        ("class.Maria Gonzalez", []),
        ("`Maria Gonzalez(1)`", []),
        ("MARIA GONZALEZ", []),
        ("Frank Feedback", []),
        ("Grace Period", []),
        ("Julia Release", []),
    ],
)
def test_a_list_has_a_part_of_the_name(text: str, names: list[str]) -> None:
    assert listed(text) == names


def test_where_any_noun_has_a_capital_lists_have_the_whole_name() -> None:
    text = "Das hatte Reinhard Keller vom Institut zu Maria Zeitungen gesagt."
    assert listed(text, by_all_words=True) == ["Reinhard Keller"]
    assert listed(text) == ["Reinhard Keller", "Maria Zeitungen"]


async def test_names_in_full_are_found_in_a_language_without_a_model(redactor: PresidioRedactor) -> None:
    text = "Das Geschäft hatte Reinhard Keller im vergangenen Jahr übernommen, und nun wird es wieder verkauft."
    (result,) = await redactor.redact([text], Place.COMPRESSED, "t")
    assert result.languages_without_names == ("de",)
    assert await replaced(redactor, text) == ["Reinhard Keller"]


def test_a_name_does_not_say_in_which_language_a_text_is() -> None:
    assert without_names("We asked Nguyễn Thị Minh for advice.") == "We asked  for advice."
    assert without_names("شركة مهندسي ايران") == "شركة مهندسي ايران"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"full_name": "Zvi Baratz", "id": 3}', ["Zvi Baratz"]),
        ("assignee: Florian Apolloner\nstate: open", ["Florian Apolloner"]),
        ("approved_by=Tatul Danielyan, at=noon", ["Tatul Danielyan"]),
        ("ip=local user='Berqia Mouad' code=3", ["Berqia Mouad"]),
        ("// FIXME(Iuri de Silvio) later", ["Iuri de Silvio"]),
        ("Hello, my name is Tzvetana.", ["Tzvetana"]),
        ("owner: Maria", ["Maria"]),
        ('name="Tamsin Archer"', ["Tamsin Archer"]),
        ('name="Tatul Danielyan"', []),
        ('name="Visual Studio"', []),
        ('customer="Acme Tools"', []),
        ('{"owner": "Kubernetes Operations"}', []),
        ("owner: Platform Team", []),
        ('author = "Unknown"', []),
        ("user: Admin User", []),
        ("user: Ask Solem for the key", []),
        ('surname_index="Maria Gonzalez"', []),
        ("# TODO(Later)", []),
    ],
)
def test_a_field_says_that_its_value_is_a_person(text: str, names: list[str]) -> None:
    assert stated(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Kowalczyk said that it rains.", ["Kowalczyk"]),
        ("Ingrid <ingrid@example.org>", ["Ingrid"]),
        ("The ministry says no. Documentation says so, and Berlin said yes.", []),
    ],
)
def test_a_known_name_before_what_people_do_is_one(text: str, names: list[str]) -> None:
    assert [text[one.start : one.end] for one in saying_people(text, 0, len(text))] == names


@pytest.mark.parametrize(
    ("name", "later", "again"),
    [
        ("Priya", "I met with Priya yesterday.", ["Priya"]),
        ("Ruby", "Is Ruby slower?", []),
        ("Berlin", "Berlin was cold.", []),
        ("Maria Gonzalez", "Maria's cat, and Gonzalez", ["Maria", "Gonzalez"]),
        ("Zorba Xylander", "Zorba and Xylander", ["Xylander"]),
        ("Paris Hilton", "Paris", []),
        ("Mark Young", "Mark, Young", []),
        ("Gonzalez", "Gonzalez", []),
        ("Maria Gonzalez", "Maria_x, GonzalezList, gonzalez", []),
    ],
)
def test_a_part_of_a_name_is_one_wherever_it_is_nothing_else(name: str, later: str, again: list[str]) -> None:
    text = f"{name} came. {later}."
    people = [Found("PERSON", 0, len(name), 0.85)]
    found = [text[one.start : one.end] for one in named_again(text, people, len(name), len(text))]
    assert found == again


SAID = "Retention: service 00 keeps invoices for 30 days, says Tamsin Archer."
NOTE = {"text": SAID, "document": "svc00.md", "first_line": 4, "last_line": 4}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(NOTE),
        json.dumps({"notes": [{"n": 1}, {"kept": ["Nothing is said here.", SAID]}]}, indent=2),
        json.dumps({"arguments": json.dumps({"more": json.dumps(NOTE)})}),
        json.dumps({"answer": f"It says: {json.dumps(NOTE)}, and no more."}),
        "\n".join(json.dumps({"id": number, "text": text}) for number, text in enumerate(["Nobody is here.", SAID])),
        json.dumps({"text": f"{'It is cold today. ' * 200}{SAID}"}),
    ],
)
async def test_a_sentence_in_json_is_read_as_one(redactor: PresidioRedactor, text: str) -> None:
    assert await replaced(redactor, text) == ["Tamsin Archer"]


async def test_what_json_spells_out_is_read_as_it_is_meant(redactor: PresidioRedactor) -> None:
    text = json.dumps({"text": "Line one.\nYesterday Gérard Étienne asked for it.\n"})
    assert await replaced(redactor, text) == [r"G\u00e9rard \u00c9tienne"]


async def test_keys_and_states_of_json_are_no_sentences(redactor: PresidioRedactor) -> None:
    state = {"status": "Active", "kind": "Deployment", "message": "Container Started", "phase": "Pending"}
    assert await replaced(redactor, json.dumps(state)) == []
