"""Formats the numbers of list items, clauses and headings as documents show them."""

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc")),
    *((50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_MAX_ROMAN = 3_999
_MAX_LETTERS = 520


def format_number(number: int, style: str) -> str:
    """Format a number in one of Word's number formats, or with `upperAlpha` and `lowerAlpha` as on web pages: they
    continue with aa, ab after z, and Word with aa, bb. Digits are used if the format is another or has no such number.
    """
    match style:
        case "upperRoman" | "lowerRoman" if 0 < number <= _MAX_ROMAN:
            written = _roman(number)
        case "upperLetter" | "lowerLetter" if 0 < number <= _MAX_LETTERS:
            written = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        case "upperAlpha" | "lowerAlpha" if number > 0:
            written = _alphabetic(number)
        case "decimalZero":
            return f"{number:02}"
        case "ordinal":
            return f"{number}{_ordinal_ending(number)}"
        case _:
            return str(number)
    return written.upper() if style.startswith("upper") else written


def _roman(number: int) -> str:
    written = ""
    for value, signs in _ROMAN:
        times, number = divmod(number, value)
        written += signs * times
    return written


def _alphabetic(number: int) -> str:
    written = ""
    while number:
        number, place = divmod(number - 1, 26)
        written = chr(ord("a") + place) + written
    return written


def _ordinal_ending(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
