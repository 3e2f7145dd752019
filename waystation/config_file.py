"""The config file: TOML with settings under their lower-case names, and nothing that is secret."""

import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from waystation.domain.errors import BadInput

CONFIG_NAME = "config.toml"
PREFIX = "WAYSTATION_"
"""Of the variables of the environment."""
NOT_IN_A_FILE = {
    "home": "it says where the file is found",
    "config": "it says where the file is found",
    "store_url": "it may hold a password",
    "anthropic_api_key": "it is a secret",
    "qdrant_api_key": "it is a secret",
    "key": "it is a secret",
    "previous_keys": "it holds secrets",
    "codec_token": "it is a secret",
    "embedder_key": "it is a secret",
    "voyage_api_key": "it is a secret",
    "webhook": "it holds a secret",
}
"""Settings that only the environment gives, and why."""


def read_config(path: Path, fields: Mapping[str, FieldInfo], *, must_exist: bool) -> dict[str, object]:
    """What the file says, by the names of settings; nothing where there is no file that has to be there.

    Raises BadInput for a file that cannot be read, and for names that are no settings or only the environment's.
    Values are never shown: a secret may be among them.
    """
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not must_exist:
            return {}
        raise BadInput(f"the config file {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"the config file {path} is not TOML: {error}") from error
    for name in written:
        if fault := _fault(name, fields):
            raise BadInput(f"the config file {path} must not give {name}, since {fault}")
    return written


def variables_of(name: str, field: FieldInfo) -> tuple[str, ...]:
    """The variables that give a setting, the strongest first."""
    if isinstance(field.validation_alias, AliasChoices):
        return tuple(str(choice) for choice in field.validation_alias.choices)
    return (f"{PREFIX}{name.upper()}",)


def _fault(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Why the file must not give this; empty where it may."""
    meant = next((field for field in fields if _means(name, field, variables_of(field, fields[field]))), None)
    if meant is None:
        close = get_close_matches(name.lower(), fields.keys() - NOT_IN_A_FILE.keys(), n=1)
        return "there is no such setting" + (f": did you mean {close[0]}?" if close else "")
    if meant in NOT_IN_A_FILE:
        variable = variables_of(meant, fields[meant])[0]
        return f"{NOT_IN_A_FILE[meant]}: set {variable} in the environment"
    return "" if name == meant else f"here its name is {meant}"


def _means(name: str, field: str, variables: Collection[str]) -> bool:
    """Also in capitals, by a variable's name, and with hyphens."""
    said = name.upper().replace("-", "_")
    return said == field.upper() or said in variables
