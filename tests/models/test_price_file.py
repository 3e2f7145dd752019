import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.prices import PRICES
from waystation.cli.console import format_error
from waystation.cli.main import run
from waystation.kernel.errors import BadInput
from waystation.kernel.usage import Usage
from waystation.models.prices import EXAMPLE, LIKE, load_prices, load_published_prices
from waystation.models.profiles import KNOWN_MODELS, compute_cost_micro_usd, find_price, find_worst_rates

TODAY = date(2026, 11, 21)
RATES = "rates = { input = 3, output = 18, cache_write = 4.5, cache_read = 0.18 }"


def entry(text: str = RATES, model: str = 'model = "claude-opus-5-5"') -> str:
    return f"[[price]]\n{model}\n{text}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prices.toml"


def test_without_a_file_the_published_prices_hold() -> None:
    assert load_prices(None) == load_published_prices()


def test_the_example_that_complaints_show_is_a_price_file(file: Path) -> None:
    file.write_text(EXAMPLE)
    prices = load_prices(file)
    own = find_price("claude-opus-5-5", date(2026, 11, 1), prices)
    assert own is not None
    assert (own.rates.input, own.rates.cache_read) == (Decimal("3.6"), Decimal("0.18"))


def test_own_prices_replace_those_of_the_models_they_name_and_of_no_other(file: Path) -> None:
    file.write_text(entry())
    prices = load_prices(file)
    assert compute_cost_micro_usd("claude-opus-5-5", Usage(output=1_000_000), TODAY, prices) == 18_000_000
    assert [price for price in prices if price.model != "claude-opus-5-5"] == [
        price for price in load_published_prices() if price.model != "claude-opus-5-5"
    ]


@pytest.mark.parametrize("name", ["claude-sonnet-5-5", "claude-sonnet-5-5-20261001"])
def test_an_own_price_also_replaces_built_in_ones_that_are_dated_later(file: Path, name: str) -> None:
    file.write_text(entry(model=f'model = "{name}"'))
    prices = load_prices(file)
    for day in (date(2026, 1, 1), TODAY, date(2030, 1, 1)):
        assert compute_cost_micro_usd("claude-sonnet-5-5", Usage(input=1_000_000), day, prices) == 3_000_000
    assert len([price for price in prices if price.model == "claude-sonnet-5-5"]) == 1


def test_a_model_may_have_several_dated_prices_and_none_before_the_first(file: Path) -> None:
    later = RATES.replace("input = 3", "input = 6")
    file.write_text(entry(f"since = 2026-11-01\n{RATES}") + entry(f"since = 2026-12-01\n{later}"))
    prices = load_prices(file)
    costs = [
        compute_cost_micro_usd("claude-opus-5-5", Usage(input=1), day, prices)
        for day in (date(2026, 10, 31), date(2026, 11, 1), date(2026, 12, 1))
    ]
    assert costs == [None, 3, 6]


def test_a_model_that_is_not_built_in_gets_a_price_also_for_long_prompts(file: Path) -> None:
    long = RATES.replace("rates = {", "{").replace("input = 3", "input = 30")
    file.write_text(entry(f"{RATES}\nlong_prompts = {{ over = 1000, rates = {long} }}", 'model = "house-1"'))
    prices = load_prices(file)
    assert prices[:-1] == load_published_prices()
    assert compute_cost_micro_usd("house-1", Usage(input=1_000), TODAY, prices) == 3_000
    assert compute_cost_micro_usd("house-1", Usage(input=1_001), TODAY, prices) == 30_030
    worst = find_worst_rates("house-1", 1_001, TODAY, prices)
    assert worst is not None
    assert worst.input == Decimal(30)


BROKEN = {
    "nothing in it": ("", "price: it is missing; "),
    "an entry that is none": (
        "price = [3]",
        "price 1: it should have named values, as a JSON object or a TOML table does; ",
    ),
    "no entry": ("price = []", "price: it is empty; "),
    "another table": (f"{entry()}[[prices]]\n", "prices: there is no such field; "),
    "no model": (entry(model=""), "model of price 1: it is missing; "),
    "an empty model": (entry(model='model = ""'), "model of price 1: it is empty; "),
    "no rates": (entry(text=""), "rates of price 1: it is missing; "),
    "a missing rate": (
        entry("rates = { input = 3, output = 18, cache_write = 4.5 }"),
        "rates.cache_read of price 1: it is missing; ",
    ),
    "a misspelt rate": (
        entry(RATES.replace("cache_read", "cached")),
        "rates.cache_read of price 1: it is missing; rates.cached of price 1: there is no such field; ",
    ),
    "a misspelt field": (entry(f"sinse = 2026-11-01\n{RATES}"), "sinse of price 1: there is no such field; "),
    "a negative rate": (
        entry(RATES.replace("input = 3", "input = -3")),
        "rates.input of price 1: it should be at least 0; ",
    ),
    "an output for nothing": (
        entry(RATES.replace("= 18", "= 0")),
        "rates.output of price 1: it must be more than 0 if the input rate is more than 0; ",
    ),
    "a rate that is no number": (
        entry(RATES.replace("= 18", "= nan")),
        "rates.output of price 1: it should be a finite number; ",
    ),
    "a rate in words": (
        entry(RATES.replace("= 18", '= "dear"')),
        "rates.output of price 1: it should be a number; ",
    ),
    "a date that is none": (entry(f'since = "soon"\n{RATES}'), "since of price 1: it should be a valid date"),
    "long prompts from nothing on": (
        entry(f"{RATES}\nlong_prompts = {{ over = 0, {RATES} }}"),
        "long_prompts.over of price 1: it should be more than 0; ",
    ),
    "a fault in a later entry": (entry() + entry(text=""), "rates of price 2: it is missing; "),
}


@pytest.mark.parametrize(("written", "fault"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_refused_with_its_name_the_entry_and_the_field(file: Path, written: str, fault: str) -> None:
    file.write_text(written)
    with pytest.raises(BadInput) as refused:
        load_prices(file)
    assert str(refused.value).startswith(f"the price file {file} cannot be used: {fault}")
    assert format_error(refused.value) == str(refused.value), "it has one line"
    assert str(refused.value).endswith(f"; {LIKE}")


@pytest.mark.parametrize("written", [b"[[price]\n", b"model = \n", b"\xff\xfe", b"since = 2026-13-45"])
def test_what_is_not_toml_is_refused_with_an_example(file: Path, written: bytes) -> None:
    file.write_bytes(written)
    with pytest.raises(BadInput) as refused:
        load_prices(file)
    assert str(refused.value).startswith(f"the price file {file} is not TOML: ")
    assert str(refused.value).endswith(f"; {LIKE}")


def test_a_file_that_cannot_be_read_is_refused_with_the_cause(file: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be read: No such file or directory$"):
        load_prices(file)
    with pytest.raises(BadInput, match=r"cannot be read: Is a directory$"):
        load_prices(file.parent)


def test_the_published_prices_are_those_of_the_providers_own_list() -> None:
    """Once read there, in October 2026; what changes since is a new day's price, not another of these."""
    held = load_published_prices()
    for own in (price for price in PRICES if price.since <= TODAY):
        published = find_price(own.model, TODAY, held)
        newest = find_price(own.model, TODAY, PRICES)
        assert published is not None
        assert newest is not None
        assert (published.rates, published.long_prompts) == (newest.rates, newest.long_prompts)
        assert published.searches == newest.searches


def test_a_model_has_its_published_price_by_each_of_its_names_and_from_its_day_on() -> None:
    held = load_published_prices()
    assert find_price("claude-opus-5-latest", TODAY, held) is not None
    assert find_price("claude-sonnet-4-20250514", TODAY, held) is not None
    before, after = (find_price("claude-sonnet-4-6", day, held) for day in (date(2026, 3, 12), date(2026, 3, 13)))
    assert before is not None
    assert before.long_prompts is not None
    assert (before.long_prompts.over, before.long_prompts.rates.output) == (200_000, Decimal("22.5"))
    assert after is not None
    assert after.long_prompts is None
    assert find_price("gpt-5", TODAY, held) is None


def test_every_model_of_which_facts_are_known_is_at_a_price_or_is_no_public_one() -> None:
    held = load_published_prices()
    without = {facts.name for facts in KNOWN_MODELS if find_price(facts.name, TODAY, held) is None}
    assert without == {"claude-mythos-5-1", "claude-mythos-5"}


def test_where_nobody_is_paid_the_published_prices_are_not_loaded(file: Path) -> None:
    assert load_prices(None, published=False) == ()
    file.write_text(entry())
    assert [price.model for price in load_prices(file, published=False)] == ["claude-opus-5-5"]


def test_the_command_lists_prices_with_day_and_source_and_names_models_in_use_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    monkeypatch.setenv("WAYSTATION_ROLES__WRITING__MODEL", "meta/llama")
    assert run(["prices"]) == 0
    shown = capsys.readouterr()
    assert "claude-sonnet-5-5: $2 in, $10 out, $2.50 cache write, $0.10 cache read" in shown.out
    assert shown.out.count("claude-sonnet-4-6") == 1, "what held before is not told"
    assert PRICES[0].source in shown.out
    assert shown.err == "Models without a known price at their endpoint: meta/llama\n"
    (tmp_path / "prices.toml").write_text(entry(model='model = "meta/llama"'))
    monkeypatch.setenv("WAYSTATION_PRICES", str(tmp_path / "prices.toml"))
    assert run(["prices", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["without"] == []
    assert "meta/llama" in [price["model"] for price in told["prices"]]
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://localhost:11434")
    assert run(["prices"]) == 0
    elsewhere = capsys.readouterr().err
    assert "claude-sonnet-5-5" in elsewhere
    assert "meta/llama" not in elsewhere
