"""Units of figures: how they are spelled in several languages, and which are multiples of one another."""

from collections.abc import Mapping, Sequence

from waystation.kernel.patterns import compile_bounded

PERCENT, POINTS = "%", "percentage points"
_UNIT_WORDS = {
    PERCENT: "% percent pct prozent procent porcento percento",
    POINTS: "pp prozentpunkte prozentpunkten",
    "bp": "bp bps",
    "$": "$ us$ usd dollar dollars",
    "€": "€ eur euro euros",
    "cent": "cent cents",
    "£": "£ gbp",
    "pound": "pound pounds",
    "¥": "¥ jpy yen",
    "₹": "₹ inr rupee rupees",
    "chf": "chf franken",
    "kr": "kr sek nok dkk kronor kroner",
    "cny": "cny rmb yuan renminbi",
    "km": "km kilometre kilometres kilometer kilometers",
    "m": "metre metres meter meters mètres metros",
    "cm": "cm centimetre centimetres centimeter centimeters zentimeter",
    "mm": "mm millimetre millimetres millimeter millimeters",
    "mile": "mi mile miles meilen",
    "ft": "ft foot feet",
    "inch": "inch inches",
    "kg": "kg kilogram kilograms kilogramm kilo kilos",
    "g": "gram grams gramm grammes",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs",
    "t": "tonne tonnes tons ton tonnen",
    "l": "litre litres liter liters",
    "ml": "ml millilitre millilitres milliliter milliliters",
    "°c": "°c celsius",
    "°f": "°f fahrenheit",
    "second": "s sec secs second seconds sekunde sekunden secondes segundos",
    "ms": "ms millisecond milliseconds",
    "minute": "min mins minute minutes minuten minutos",
    "hour": "h hr hrs hour hours stunde stunden heures horas",
    "day": "day days tag tage tagen jour jours día días",
    "week": "week weeks woche wochen semaine semaines semana semanas",
    "month": "month months monat monate monaten mois mes meses",
    "year": "year years yr yrs jahr jahre jahren ans année années año años",
    "kb": "kb kilobyte kilobytes",
    "mb": "mb megabyte megabytes",
    "gb": "gb gigabyte gigabytes",
    "tb": "tb terabyte terabytes",
    "kw": "kw",
    "mw": "mw",
    "gw": "gw",
    "kwh": "kwh",
    "mwh": "mwh",
    "gwh": "gwh",
}
UNITS = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
CURRENCIES = frozenset({"$", "€", "£", "pound", "¥", "₹", "chf", "kr", "cny"})
STRICT_UNITS = frozenset({PERCENT, POINTS, "bp"})
"""Units without which a figure is another one."""
_MULTIPLES: Sequence[Mapping[str, float]] = (
    {"£": 1, "pound": 1},
    {"lb": 1, "pound": 1},
    {"km": 1000, "m": 1, "cm": 0.01, "mm": 0.001},
    {"mile": 5280, "ft": 1, "inch": 1 / 12},
    {"t": 1000, "kg": 1, "g": 0.001, "mg": 0.000001},
    {"l": 1, "ml": 0.001},
    {"week": 604_800, "day": 86_400, "hour": 3600, "minute": 60, "second": 1, "ms": 0.001},
    {"year": 12, "month": 1},
    {"tb": 10**12, "gb": 10**9, "mb": 10**6, "kb": 10**3},
    {"gw": 10**6, "mw": 10**3, "kw": 1},
    {"gwh": 10**6, "mwh": 10**3, "kwh": 1},
    {"$": 1, "cent": 0.01},
    {"€": 1, "cent": 0.01},
    {POINTS: 1, "bp": 0.01},
    {PERCENT: 1, "bp": 0.01},
)
"""Units that are multiples of one another, by their size."""
_SCALE_WORDS = {
    10**3: "k thousand thousands tsd tausend mille mil",
    10**5: "lakh lakhs",
    10**6: "million millions mn mio millionen milliones millones",
    10**7: "crore crores",
    10**9: "bn billion billions mrd milliarde milliarden milliard milliards",
    10**12: "tn trillion trillions bio billionen",
}
SCALES = {word: scale for scale, words in _SCALE_WORDS.items() for word in words.split()}
_MONEY_SCALES = {"m": 10**6, "b": 10**9, "t": 10**12}
"""What single letters mean after an amount of money; elsewhere `5 m` are metres."""
_LETTER_UNITS = {"m": "m", "g": "g", "t": "t", "l": "l"}
_AFTER = compile_bounded(
    r"[ -]?(?:(?P<word>per ?cent(?:age)? points?|per ?cent|percentage points?|basis points?|"
    r"pour cent|por ciento|por cento|per cento|"
    r"°[CF]?|degrees? (?:Celsius|Fahrenheit)|US\$|[%$€£¥₹]|[^\W\d_]{1,16}+)\.?)"
)
_PHRASES = {
    "percent point": POINTS,
    "percent points": POINTS,
    "basis point": "bp",
    "basis points": "bp",
    "pour cent": PERCENT,
    "por ciento": PERCENT,
    "por cento": PERCENT,
    "per cento": PERCENT,
    "degree celsius": "°c",
    "degrees celsius": "°c",
    "degree fahrenheit": "°f",
    "degrees fahrenheit": "°f",
}
_CURRENCY_BEFORE = compile_bounded(r"(US\$|USD|EUR|GBP|CHF|JPY|INR|CNY|RMB|[$€£¥₹])[ ]?\Z")


def find_currency_before(before: str) -> tuple[str, int]:
    """Return the currency at the end of what stands before a number, and the length of its sign; `""` and 0 if none."""
    match = _CURRENCY_BEFORE.search(before)
    return (UNITS[match[1].casefold()], len(match[0])) if match else ("", 0)


def read_unit(text: str, end: int, unit: str) -> tuple[str, int, int]:
    """Return the unit, the scale and the end of what follows a number."""
    scale = 1
    for _ in range(2):
        match = _AFTER.match(text, end)
        if match is None:
            break
        word = match["word"]
        small = word.casefold().replace("per cent", "percent").replace("percentage", "percent")
        if (
            scale == 1
            and (found := SCALES.get(small) or (_MONEY_SCALES.get(small, 0) if unit in CURRENCIES else 0))
            and not (small in {"k", "mil", "mille"} and text[end : end + 1] in " -" and unit not in CURRENCIES)
        ):
            scale, end = found, match.end("word")
            continue
        if unit:
            break
        direct = text[end : end + 1] not in " -"
        found_unit = UNITS.get(small) or _PHRASES.get(small) or (_LETTER_UNITS.get(word, "") if scale == 1 else "")
        if not found_unit or (len(word) == 1 and word.isalpha() and not direct and word not in _LETTER_UNITS):
            break
        unit, end = found_unit, match.end("word")
    return unit, scale, end


def convert_unit(unit: str, other: str) -> float | None:
    """Return how many of the other unit one unit is; None if neither is a multiple of the other."""
    if unit == other:
        return 1
    return next((sizes[unit] / sizes[other] for sizes in _MULTIPLES if unit in sizes and other in sizes), None)
