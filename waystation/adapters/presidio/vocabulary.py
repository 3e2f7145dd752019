"""Words that the language model takes for names, names that are also words, and places: one list a file."""

from importlib.resources import files


def _words(file_name: str) -> frozenset[str]:
    return frozenset(_text(file_name).split())


def _text(file_name: str) -> str:
    return files("waystation.adapters.presidio").joinpath(file_name).read_text("utf-8")


TECHNOLOGY = _words("technology.txt")
"""Words of software and its manuals: a find that contains one is not a person or a place."""

NAMES_THAT_ARE_WORDS = _words("names_that_are_words.txt")
"""That one of them stands in a text as an ordinary word does not mean that it is no name there."""

PLACES = frozenset(_text("places.txt").splitlines())
"""Cities of 100,000 people and more whose names are no ordinary words. From GeoNames (geonames.org, CC BY 4.0)."""

_IN_LATIN_LETTERS = _words("names_in_latin_letters.txt")
GIVEN_NAMES = _words("given_names.txt") | _IN_LATIN_LETTERS
FAMILY_NAMES = _words("family_names.txt") | _IN_LATIN_LETTERS
"""Of people in some seventy countries, in lower case and without accents. From Faker (faker.readthedocs.io, MIT), which
has those of East Asia in their own scripts: common ones in Latin letters are ours, for either.
"""

ORDINARY_WORDS = _words("ordinary_words.txt")
"""35,000 of the most frequent words of English that dictionaries write small, without those that are mostly names. From
symspellpy's frequencies (MIT) and the spelling dictionary of SCOWL (wordlist.sourceforge.net, MIT-like)."""

NO_SECRETS = _words("no_secrets.txt")
"""What stands behind `password:` or `the password is` without being one: types, states, and words of manuals."""

PROSE = NO_SECRETS | _words("words_of_prose.txt")
"""Words of which one shows that several behind `password:` are a sentence or a heading, and no phrase."""

SAID_OF_SECRETS = PROSE | _words("said_of_secrets.txt")
"""What stands behind `my password is` without being it."""
