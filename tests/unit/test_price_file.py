import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from waystation.adapters.prices import EXAMPLE, LIKE, litellm_prices, load_prices, price_file
from waystation.cli.console import sentence
from waystation.cli.main import run
from waystation.domain.budget import Usage
from waystation.domain.errors import BadInput
from waystation.domain.models import PRICES, cost_micro_usd, price_of, worst_rates

TODAY = date(2026, 11, 21)
RATES = "rates = { input = 3, output = 18, cache_write = 4.5, cache_read = 0.18 }"


def entry(text: str = RATES, model: str = 'model = "claude-opus-5-5"') -> str:
    return f"[[price]]\n{model}\n{text}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prices.toml"


def test_without_a_file_the_built_in_prices_hold() -> None:
    assert load_prices(None) == PRICES


def test_the_example_that_complaints_show_is_a_price_file(file: Path) -> None:
    file.write_text(EXAMPLE)
    prices = load_prices(file)
    own = price_of("claude-opus-5-5", date(2026, 11, 1), prices)
    assert own is not None
    assert (own.rates.input, own.rates.cache_read) == (Decimal("3.6"), Decimal("0.18"))


def test_own_prices_replace_those_of_the_models_they_name_and_of_no_other(file: Path) -> None:
    file.write_text(entry())
    prices = load_prices(file)
    assert cost_micro_usd("claude-opus-5-5", Usage(output=1_000_000), TODAY, prices) == 18_000_000
    assert [price for price in prices if price.model != "claude-opus-5-5"] == [
        price for price in PRICES if price.model != "claude-opus-5-5"
    ]


@pytest.mark.parametrize("name", ["claude-sonnet-5-5", "claude-sonnet-5-5-20261001"])
def test_an_own_price_also_replaces_built_in_ones_that_are_dated_later(file: Path, name: str) -> None:
    file.write_text(entry(model=f'model = "{name}"'))
    prices = load_prices(file)
    for day in (date(2026, 1, 1), TODAY, date(2030, 1, 1)):
        assert cost_micro_usd("claude-sonnet-5-5", Usage(input=1_000_000), day, prices) == 3_000_000
    assert len([price for price in prices if price.model == "claude-sonnet-5-5"]) == 1


def test_a_model_may_have_several_dated_prices_and_none_before_the_first(file: Path) -> None:
    later = RATES.replace("input = 3", "input = 6")
    file.write_text(entry(f"since = 2026-11-01\n{RATES}") + entry(f"since = 2026-12-01\n{later}"))
    prices = load_prices(file)
    costs = [
        cost_micro_usd("claude-opus-5-5", Usage(input=1), day, prices)
        for day in (date(2026, 10, 31), date(2026, 11, 1), date(2026, 12, 1))
    ]
    assert costs == [None, 3, 6]


def test_a_model_that_is_not_built_in_gets_a_price_also_for_long_prompts(file: Path) -> None:
    long = RATES.replace("rates = {", "{").replace("input = 3", "input = 30")
    file.write_text(entry(f"{RATES}\nlong_prompts = {{ over = 1000, rates = {long} }}", 'model = "house-1"'))
    prices = load_prices(file)
    assert prices[: len(PRICES)] == PRICES
    assert cost_micro_usd("house-1", Usage(input=1_000), TODAY, prices) == 3_000
    assert cost_micro_usd("house-1", Usage(input=1_001), TODAY, prices) == 30_030
    worst = worst_rates("house-1", 1_001, TODAY, prices)
    assert worst is not None
    assert worst.input == Decimal(30)


BROKEN = {
    "nothing in it": ("", "price: it is missing; "),
    "an entry that is none": ("price = [3]", "all of price 1: it should be a table of named values; "),
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
        "rates.output of price 1: it should be more than 0 where input is; ",
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
    assert sentence(refused.value) == str(refused.value), "it has one line"
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


PUBLISHED = {
    "sample_spec": {"input_cost_per_token": "the price", "mode": "one of chat, embedding"},
    "claude-opus-5-5-20261001": {
        "input_cost_per_token": 4e-06,
        "output_cost_per_token": 2e-05,
        "cache_creation_input_token_cost": 5e-06,
        "cache_read_input_token_cost": 2e-07,
        "input_cost_per_token_above_200k_tokens": 8e-06,
        "output_cost_per_token_above_200k_tokens": 3e-05,
        "input_cost_per_token_above_500k_tokens": 9e-06,
        "search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_high": 0.025},
    },
    "half-up": {
        "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1e-05,
        "cache_creation_input_token_cost": 1e-06,
        "cache_read_input_token_cost": 2e-07,
        "input_cost_per_token_above_128k_tokens": 5e-06,
        "cache_read_input_token_cost_above_128k_tokens": 3e-07,
    },
    "meta/llama": {"input_cost_per_token": 1e-07, "output_cost_per_token": 3e-07, "mode": "chat"},
    "an-embedding": {"input_cost_per_token": 1e-07, "output_cost_per_token": 0.0},
    "half": {"input_cost_per_token": -1, "output_cost_per_token": True},
}


def test_prices_that_litellm_publishes_are_taken_exactly_and_make_a_price_file(tmp_path: Path, file: Path) -> None:
    published = tmp_path / "published.json"
    published.write_text(json.dumps(PUBLISHED))
    asked = (
        "claude-opus-5-5",
        "claude-opus-5-5-20261001",
        "meta/llama",
        "an-embedding",
        "half",
        "sample_spec",
        "nobody",
    )
    prices = litellm_prices(published, asked, 'a "table"')
    assert [price.model for price in prices] == ["claude-opus-5-5", "meta/llama"]
    file.write_text(price_file(prices))
    kept = [price for price in load_prices(file) if price.source == 'a "table"']
    assert kept == list(prices)
    opus, llama = prices
    assert (opus.rates.input, opus.rates.output) == (Decimal(4), Decimal(20))
    assert (opus.rates.cache_write, opus.rates.cache_read, opus.searches) == (Decimal(5), Decimal("0.2"), Decimal(25))
    assert opus.long_prompts is not None
    assert opus.long_prompts.over == 200_000
    longer = opus.long_prompts.rates
    assert (longer.input, longer.output) == (Decimal(9), Decimal(30))
    assert (longer.cache_write, longer.cache_read) == (Decimal("11.25"), Decimal("0.45")), "dearer as input is"
    assert (llama.rates.cache_write, llama.rates.cache_read) == (Decimal("0.1"), Decimal("0.1"))


def test_what_the_table_says_of_the_cache_for_long_prompts_holds_and_the_rest_is_rounded_up(tmp_path: Path) -> None:
    published = tmp_path / "published.json"
    published.write_text(json.dumps(PUBLISHED))
    (price,) = litellm_prices(published, ["half-up"], "")
    assert price.long_prompts is not None
    rates = price.long_prompts.rates
    assert (rates.cache_write, rates.cache_read) == (Decimal("1.666667"), Decimal("0.3"))


def test_models_at_named_endpoints_have_the_prices_that_the_table_has_for_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published = tmp_path / "published.json"
    published.write_text(json.dumps({**PUBLISHED, "claude-haiku-5-5": PUBLISHED["half-up"]}))
    table = '[endpoints.spare]\nkind = "compatible"\nbase_url = "http://spare.test"\n'
    (tmp_path / "config.toml").write_text(f'endpoint = "spare"\nagent_model = "meta/llama"\n\n{table}')
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    assert run(["prices", "--litellm", str(published)]) == 0
    found = capsys.readouterr()
    assert 'model = "meta/llama"' in found.out
    assert found.err == ""
    assert run(["prices", "--litellm", str(published), "--model", "spare::meta/llama"]) == 0
    assert 'model = "meta/llama"' in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\xff"])
def test_what_is_no_table_of_prices_is_refused(tmp_path: Path, text: str) -> None:
    published = tmp_path / "published.json"
    published.write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match="is not JSON with a table of models"):
        litellm_prices(published, ["claude-opus-5-5"], "")
    with pytest.raises(BadInput, match="cannot be read"):
        litellm_prices(tmp_path / "nowhere.json", ["claude-opus-5-5"], "")


def test_the_command_lists_prices_with_day_and_source_and_names_models_in_use_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published = tmp_path / "published.json"
    published.write_text(json.dumps(PUBLISHED))
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    monkeypatch.setenv("WAYSTATION_MODEL_WRITING", "meta/llama")
    assert run(["prices"]) == 0
    shown = capsys.readouterr()
    assert "claude-sonnet-5-5 from 2026-10-07 on: $2 in, $10 out, cache $2.50 written, $0.10 read" in shown.out
    assert PRICES[0].source in shown.out
    assert shown.err == "without a price that holds here: meta/llama\n"
    assert run(["prices", "--litellm", str(published), "--model", "meta/llama"]) == 0
    imported = capsys.readouterr()
    (tmp_path / "prices.toml").write_text(imported.out)
    assert imported.err == ""
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
    assert run(["prices", "--model", "meta/llama"]) != 0
    assert "name it with --litellm" in capsys.readouterr().err
