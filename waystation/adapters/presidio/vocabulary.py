"""Words that the language model takes for names, and names that are also words: one list a file, in lower case."""

from importlib.resources import files


def _words(file_name: str) -> frozenset[str]:
    return frozenset(files("waystation.adapters.presidio").joinpath(file_name).read_text("utf-8").split())


TECHNOLOGY = _words("technology.txt")
"""Words of software and its manuals: a find that contains one is not a person or a place."""

NAMES_THAT_ARE_WORDS = _words("names_that_are_words.txt")
"""That one of them stands in a text as an ordinary word does not mean that it is no name there."""
