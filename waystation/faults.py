"""What is wrong with settings, in the words of the person who gave them."""

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from waystation.config_file import variables_of
from waystation.domain.malformed import malformed
from waystation.settings import Settings, config_file_given, variable_given


def faults(error: ValidationError) -> str:
    """What is wrong with the settings: each by where it was given, with what is allowed."""
    sentences: list[str] = []
    for fault in malformed(error):
        first, *inner = map(str, fault.place)
        name = _name_of(first)
        field = Settings.model_fields.get(name)
        allowed = "there is no such setting" if field is None else _range(field)
        cause = "; ".join(filter(None, (allowed, fault.words if fault.ours or not allowed else "")))
        place = variable_given(name) or f"{'.'.join([name, *inner])} in {config_file_given()}"
        sentences.append(f"{place}: {cause}")
    return "; ".join(sentences)


def _name_of(place: str) -> str:
    """The setting's name, by which or by whose variable an error names it."""
    fields = Settings.model_fields.items()
    return next((name for name, field in fields if place in variables_of(name, field)), place)


def _range(field: FieldInfo) -> str:
    """What a number may be; empty where it has no bounds."""
    bounds = {
        kind: getattr(mark, kind) for mark in field.metadata for kind in ("ge", "gt", "le") if hasattr(mark, kind)
    }
    words = {"ge": "{:,} or more", "gt": "more than {:,}", "le": "at most {:,}"}
    if {"ge", "le"} <= bounds.keys():
        return f"from {bounds['ge']:,} to {bounds['le']:,}"
    return " and ".join(words[kind].format(bound) for kind, bound in bounds.items())
