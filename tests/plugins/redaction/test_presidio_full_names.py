"""Names that the language model does not see, or sees half of: by lists, and by what stands around them."""

import json
from collections.abc import Iterable

import pytest

from waystation.plugins.redaction.columns import expand_to_full_name, find_people_by_context, find_speaker_names
from waystation.plugins.redaction.detections import Detection
from waystation.plugins.redaction.people import (
    find_listed_people,
    find_repeated_names,
    find_stated_people,
    strip_names,
)
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import NAME_TYPES, TextDestination


async def replaced(redactor: PresidioRedactor, text: str) -> list[str]:
    return (await all_replaced(redactor, [text]))[text]


async def all_replaced(redactor: PresidioRedactor, texts: Iterable[str]) -> dict[str, list[str]]:
    """The names in each of these texts that are replaced."""
    given = [*texts]
    results = await redactor.redact(given, TextDestination.COMPRESSED, "t")
    return {
        text: [text[span.start : span.end] for span in result.spans if span.type in NAME_TYPES]
        for text, result in zip(given, results, strict=True)
    }


def listed(text: str, *, by_all_words: bool = False) -> list[str]:
    found = find_listed_people(text, 0, len(text), by_all_words=by_all_words)
    return [text[one.start : one.end] for one in found]


def stated(text: str) -> list[str]:
    return [text[one.start : one.end] for one in find_stated_people(text, 0, len(text))]


WHOLE_NAMES = {
    'User(name="Maria Gonzalez")': ["Maria Gonzalez"],
    'customer="Ingrid Solheim"': ["Ingrid Solheim"],
    "# TODO(Ada Lovelace): fix": ["Ada Lovelace"],
    "User(name='Tamsin Archer', age=41)": ["Tamsin Archer"],
    'assert greet("Kirill Romanov") == "hello"': ["Kirill Romanov"],
    "Siobhan Keane promised to send the draft by Friday.": ["Siobhan Keane"],
    "Petra Lindqvist promised to call back.": ["Petra Lindqvist"],
    "Tomasz Kowalczyk": ["Tomasz Kowalczyk"],
    "first_name=Marek last_name=Nowak age=3": ["Marek", "Nowak"],
    "Björk Guðmundsdóttir sang.": ["Björk Guðmundsdóttir"],
    "Nguyễn Thị Minh called.": ["Nguyễn Thị Minh"],
    "We met Anne-Marie van der Berg in the lobby.": ["Anne-Marie van der Berg"],
    "Yesterday Omar al-Farsi signed.": ["Omar al-Farsi"],
    "Maria Gonzalez paid. Later Gonzalez asked for the receipt.": ["Maria Gonzalez", "Gonzalez"],
}


async def test_a_name_is_replaced_as_a_whole(redactor: PresidioRedactor) -> None:
    assert await all_replaced(redactor, WHOLE_NAMES) == WHOLE_NAMES


NO_NAMES = (
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
    "The Jackson library parses it, and Carter Framework, too.",
    "We use Hamcrest and Mockito for tests, and Lodash for lists.",
    "In Amazon Aurora the writer fails over.",
    "The metrics go to Victoria Metrics, and from VictoriaMetrics to a file.",
    "The Nash equilibrium of the game",
    "(NaN, NaT, None)",
    "JACKSON HOLE, READ ONLY, MARK ALL",
    "Jira is down.",
)


async def test_what_only_looks_like_a_name_stays(redactor: PresidioRedactor) -> None:
    assert await all_replaced(redactor, NO_NAMES) == {text: [] for text in NO_NAMES}


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


LISTED: dict[str, list[str]] = {
    "Asked Jean-Luc de la Cruz about it": ["Jean-Luc de la Cruz"],
    "with Akash Agrawal on call": ["Akash Agrawal"],
    "by Laura W. Dekker and J. Newman": ["Laura W. Dekker"],
    "met Wayne's Rooney": [],
    "the Ada Lovelace Institute": [],
    "at Petra Lindqvist Street": [],
    "from Maria Park and Anna K. Hall": ["Maria Park", "Anna K. Hall"],
    "in San Francisco": [],
    "of the New York Stock": [],
    "Santa Fe, Rio Nalon, Nova Scotia": [],
    "Kubernetes Martinez": [],
    "class.Maria Gonzalez": [],
    "`Maria Gonzalez(1)`": [],
    "MARIA GONZALEZ": [],
    "Frank Feedback": [],
    "Grace Period": [],
    "Julia Release": [],
}


def test_a_list_has_a_part_of_the_name() -> None:
    assert {text: listed(text) for text in LISTED} == LISTED


def test_where_any_noun_has_a_capital_lists_have_the_whole_name() -> None:
    text = "Das hatte Reinhard Keller vom Institut zu Maria Zeitungen gesagt."
    assert listed(text, by_all_words=True) == ["Reinhard Keller"]
    assert listed(text) == ["Reinhard Keller", "Maria Zeitungen"]


async def test_names_in_full_are_found_in_a_language_without_a_model(redactor: PresidioRedactor) -> None:
    text = "Das Geschäft hatte Reinhard Keller im vergangenen Jahr übernommen, und nun wird es wieder verkauft."
    (result,) = await redactor.redact([text], TextDestination.COMPRESSED, "t")
    assert result.languages_without_names == ("de",)
    assert await replaced(redactor, text) == ["Reinhard Keller"]


def test_a_name_does_not_say_in_which_language_a_text_is() -> None:
    assert strip_names("We asked Nguyễn Thị Minh for advice.") == "We asked  for advice."
    assert strip_names("شركة مهندسي ايران") == "شركة مهندسي ايران"


STATED: dict[str, list[str]] = {
    '{"full_name": "Zvi Baratz", "id": 3}': ["Zvi Baratz"],
    "assignee: Florian Apolloner\nstate: open": ["Florian Apolloner"],
    "approved_by=Tatul Danielyan, at=noon": ["Tatul Danielyan"],
    "ip=local user='Berqia Mouad' code=3": ["Berqia Mouad"],
    "// FIXME(Iuri de Silvio) later": ["Iuri de Silvio"],
    "Hello, my name is Tzvetana.": ["Tzvetana"],
    "owner: Maria": ["Maria"],
    "first_name=Marek was here": [],
    'name="Tamsin Archer"': ["Tamsin Archer"],
    'name="Tatul Danielyan"': [],
    'name="Visual Studio"': [],
    'customer="Acme Tools"': [],
    '{"owner": "Kubernetes Operations"}': [],
    "owner: Platform Team": [],
    'author = "Unknown"': [],
    "user: Admin User": [],
    "user: Ask Solem for the key": [],
    'surname_index="Maria Gonzalez"': [],
    "# TODO(Later)": [],
}


def test_a_field_says_that_its_value_is_a_person() -> None:
    assert {text: stated(text) for text in STATED} == STATED


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Kowalczyk said that it rains.", ["Kowalczyk"]),
        ("Ingrid <ingrid@example.org>", ["Ingrid"]),
        ("The ministry says no. Documentation says so, and Berlin said yes.", []),
    ],
)
def test_a_known_name_before_what_people_do_is_one(text: str, names: list[str]) -> None:
    assert [text[one.start : one.end] for one in find_speaker_names(text, 0, len(text))] == names


AROUND: dict[str, list[str]] = {
    "As reported, and told As, the export is late.": [],
    "Thanks, Priya": ["Priya"],
    "Ask Priya about the index.": ["Priya"],
    "Ask Redis about the index, and say hello to Documentation.": [],
    "- [ ] Marek: deploy": ["Marek"],
    "<td>Tamsin Archer</td><td>Visual Studio</td>": ["Tamsin Archer"],
    "10:00 INFO login ok for Tamsin Archer": ["Tamsin Archer"],
    "for Tamsin Archer Park, and with Visual Archer": [],
    "ARCHER, TAMSIN": ["ARCHER, TAMSIN"],
    "see ARCHER, TAMSIN": [],
    "JOHN SMITH signed": ["JOHN SMITH"],
    '"Marek","Nowak",3': ["Marek", "Nowak"],
    "Nowak\tMarek\t3": ["Nowak", "Marek"],
    "Marek,Kubernetes,3": [],
    "Interview with Oluwaseun Adeyemi.md": ["Oluwaseun Adeyemi"],
    "Ana,ana@example.com": ["Ana"],
    "Zorbax;zorbax.x@example.com": ["Zorbax"],
    "Support,support@example.com": [],
    "says Дмитрий Иванов": ["Дмитрий Иванов"],
    "Привет, я Иван Петров из Нижний Магазинчик": ["Иван Петров"],
    "Меня зовут Иван, прибыл в Казань.": ["Иван"],
    "είμαι ο Γιώργος Παπαδόπουλος": ["Γιώργος Παπαδόπουλος"],
    "我叫王小明，住在北京": ["王小明"],
    "Owner: 王小明, 张先生说。": ["王小明", "张"],
    "Owner: 平台团队": [],
}


def test_what_stands_around_a_name_says_that_it_is_one() -> None:
    found = {text: [text[one.start : one.end] for one in find_people_by_context(text, 0, len(text))] for text in AROUND}
    assert found == AROUND


AGAIN: dict[tuple[str, str], list[str]] = {
    ("Priya", "I met with Priya yesterday."): ["Priya"],
    ("Ruby", "Is Ruby slower?"): [],
    ("Berlin", "Berlin was cold."): [],
    ("Maria Gonzalez", "Maria's cat, and Gonzalez"): ["Maria", "Gonzalez"],
    ("Zorba Xylander", "Zorba and Xylander"): ["Xylander"],
    ("Paris Hilton", "Paris"): [],
    ("Mark Young", "Mark, Young"): [],
    ("Gonzalez", "Gonzalez"): [],
    ("Maria Gonzalez", "Maria Gonzalez, Maria, Gonzalez"): ["Maria Gonzalez", "Maria", "Gonzalez"],
    ("Maria Gonzalez", "Maria_x, GonzalezList, gonzalez"): [],
}
"""By a name and what is said later: what of that names the person again."""


def test_a_part_of_a_name_is_one_wherever_it_is_nothing_else() -> None:
    def found(name: str, later: str) -> list[str]:
        text = f"{name} came. {later}."
        people = [Detection("PERSON", 0, len(name), 0.85)]
        return [text[one.start : one.end] for one in find_repeated_names(text, people, len(name), len(text))]

    assert {(name, later): found(name, later) for name, later in AGAIN} == AGAIN


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


@pytest.mark.parametrize(
    "line",
    [
        "ask ada lovelace",
        "user ada lovelace logged in",
        "from ada.lovelace import notes",
        "Das hatte der Vorstand im vergangenen Jahr schon beschlossen, und nun wird es wieder verkauft.",
    ],
)
async def test_what_stands_on_other_lines_hides_no_name(redactor: PresidioRedactor, line: str) -> None:
    text = f"# TODO(Ada Lovelace): fix\n{line}\n> On Tue, Ada Lovelace wrote:\n<td>Tamsin Archer</td>\n"
    assert await replaced(redactor, text) == ["Ada Lovelace", "Ada Lovelace", "Tamsin Archer"]


async def test_a_person_has_one_placeholder_also_where_the_model_sees_a_place(redactor: PresidioRedactor) -> None:
    text = "Julia broke the build again, ask Julia."
    (result,) = await redactor.redact([text], TextDestination.COMPRESSED, "t")
    assert [span.type for span in result.spans] == ["PERSON", "PERSON"]
    assert len({span.placeholder for span in result.spans}) == 1


def test_half_a_name_in_another_script_is_the_whole_of_it() -> None:
    text = "спросил Дмитрий Кот, Γιώργος Δέντρο, Ada Lovelace"
    for half, whole in (("Кот", "Дмитрий Кот"), ("Γιώργος", "Γιώργος Δέντρο"), ("Ada", "Ada")):
        start = text.index(half)
        found = expand_to_full_name(text, Detection("PERSON", start, start + len(half), 0.85))
        assert text[found.start : found.end] == whole


async def test_a_document_is_called_by_a_name_with_placeholders(redactor: PresidioRedactor) -> None:
    assert await replaced(redactor, "Interview with Oluwaseun Adeyemi.md") == ["Oluwaseun Adeyemi"]
    assert await replaced(redactor, "See `Oluwaseun Adeyemi.md` and src/Adeyemi.md.") == []
