"""The descriptions of the installed Python distributions as Markdown: documents that are on every machine."""

from importlib.metadata import PackageMetadata, distributions
from pathlib import Path

from waystation.patterns import proven

_BETWEEN_WORDS = proven(r"[-_.]+")


def write_installed(folder: Path) -> tuple[Path, ...]:
    """Write headers and long description of every installed distribution to `<name>.md`, sorted by name.

    Of a distribution that is installed twice, the one that Python would import counts. Makes the folder if needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, str] = {}
    for distribution in distributions():
        headers = distribution.metadata
        # A half-removed installation has metadata without a name.
        if "Name" in headers:
            name = _BETWEEN_WORDS.sub("-", headers["Name"]).lower()
            texts.setdefault(name, _markdown(headers))
    written: list[Path] = []
    for name, text in sorted(texts.items()):
        path = folder / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return tuple(written)


def _markdown(headers: PackageMetadata) -> str:
    fields = dict.fromkeys(key for key in headers if key != "Description")
    lines = [f"- {key}: {' '.join(value.split())}" for key in fields for value in headers.get_all(key, [])]
    description = "".join(headers.get_all("Description", []))
    return "\n".join([f"# {headers['Name']} {headers['Version']}", "", *lines, "", description.strip()]).strip() + "\n"
