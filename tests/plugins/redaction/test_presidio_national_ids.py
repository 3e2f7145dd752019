import pytest

from waystation.kernel.errors import BadInput
from waystation.plugins.redaction.national import FORMS
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import COUNTRIES, DetectionConfig, validate_countries
from waystation.privacy.policy import TextDestination

KEY = b"k" * 32
IDS = {
    "us": ("It was 536-22-1234 then.", "SSN"),
    "uk": ("It was AB 12 34 56 C then.", "UK_NINO"),
    "de": ("Steuer-ID: 86095742719", "DE_TAX_ID"),
    "es": ("El DNI 12345678Z caduca.", "ES_NIF"),
    "it": ("Codice RSSMRA85T10A562S vale.", "IT_FISCAL_CODE"),
    "pl": ("PESEL 44051401359", "PL_PESEL"),
    "fi": ("Se on 131052-308T nyt.", "FI_PERSONAL_IDENTITY_CODE"),
    "se": ("personnummer 811228-9874", "SE_PERSONNUMMER"),
    "in": ("It was ABCPE1234F then.", "IN_PAN"),
    "ca": ("social insurance number 130 692 544", "CA_SIN"),
    "sg": ("NRIC S1234567D", "SG_NRIC_FIN"),
    "kr": ("RRN 960121-1234560.", "KR_RRN"),
    "th": ("TNIN 1112345678949", "TH_TNIN"),
    "tr": ("TCKN 10000000146", "TR_NATIONAL_ID"),
    "za": ("ID number 8001015009087", "ZA_ID_NUMBER"),
    "au": ("tax file number 876 543 210", "AU_TFN"),
    "ng": ("NIN 12345678902", "NG_NIN"),
}
UNLABELLED = (
    "Order 86095742719 of 44051401359, 10000000146 and 8001015009087 at 1700000000000.",
    "Commits 1234567a, 12345678z and s1234567d, build 1234567B-rc1, part-12345678Z, /x/12345678Z.",
    "Lines 811228-9874, rows 130 692 544, v1.12345678.",
)


async def types_in(text: str, *countries: str) -> list[str]:
    redactor = PresidioRedactor(KEY, DetectionConfig(countries=validate_countries(countries)))
    try:
        (result,) = await redactor.redact([text], TextDestination.TOOL_RESULT, "t")
    finally:
        redactor.close()
    return [span.type for span in result.spans]


async def test_the_ids_of_a_country_are_found_where_it_is_set_and_only_there() -> None:
    found = {country: await types_in(IDS[country][0], country) for country in COUNTRIES}
    assert found == {country: [IDS[country][1]] for country in COUNTRIES}
    unset = {country: await types_in(IDS[country][0]) for country in COUNTRIES}
    assert [country for country in COUNTRIES if IDS[country][1] in unset[country]] == []


@pytest.mark.parametrize("written", ["AB-PE1234F", "abcd12345e", "ABCPE 1234 F"])
async def test_a_labelled_account_number_of_india_is_found_however_it_is_written(written: str) -> None:
    assert await types_in(f"PAN: {written} of 2024", "in") == ["IN_PAN"]


async def test_a_word_behind_the_label_is_no_id_because_digits_follow_later() -> None:
    assert await types_in("PAN: everything else since 2024", "in") == []


async def test_numbers_that_nothing_calls_an_id_stay_whatever_is_set() -> None:
    for text in UNLABELLED:
        assert await types_in(text, *COUNTRIES) == []


def test_a_country_without_recognisers_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(BadInput, match=r"^national_ids: there are no recognisers for xx; supported: au, ca, de, "):
        validate_countries(("de", "xx"))


def test_the_countries_that_can_be_set_are_those_that_have_recognisers() -> None:
    assert {*FORMS, "us"} == COUNTRIES
