"""The page of the HTTP API, from its OpenAPI schema."""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi.openapi.utils import get_openapi

from benchmarks.reference.markdown import fill_paragraphs, render_page, render_table
from waystation import __version__
from waystation.plugins.web.api import v1

INTRODUCTION = """
`waystation serve` answers these requests. `/v1/openapi.json` is the same description for programs. Send
`Authorization: Bearer` with an API key, an OpenID token or the token that the server printed.

`{task}` is the id of a task or its first characters. `{agent}` is the id of the agent's step, such as `research-1`.

[HTTP errors](http-errors.md) lists the errors that every request may answer with. In the schemas, a question mark after
the name of a field says that the field is optional.
"""
FIRST_ERROR = "400"
"""Lowest status of an error."""


def render_http_api_page() -> str:
    """Render every path with its parameters, body and answers, then the schemas."""
    schema = get_openapi(title="Waystation", version=__version__, routes=v1.routes)
    blocks = [fill_paragraphs(INTRODUCTION), "## Requests"]
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            blocks += _render_operation(f"{method.upper()} {path}", operation)
    blocks.append("## Schemas")
    for name, component in sorted(schema["components"]["schemas"].items()):
        blocks += _render_schema(name, component)
    return render_page("HTTP API", blocks)


def _render_operation(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {title}"
    yield fill_paragraphs(operation.get("description") or operation["summary"])
    rows = [
        (f"`{one['name']}`", one["in"], describe_type(one["schema"]), one.get("description") or "")
        for one in operation.get("parameters", ())
        if one["in"] != "path"
    ]
    yield render_table(("parameter", "in", "type", "description"), rows)
    body = _get_schema(operation.get("requestBody", {}))
    answers = (
        f"{status} {describe_type(_get_schema(response)) if _get_schema(response) else ''}".strip()
        for status, response in operation["responses"].items()
        if status < FIRST_ERROR
    )
    yield fill_paragraphs(f"{f'Body: {describe_type(body)}. ' if body else ''}Answers: {'; '.join(answers)}.")


def _get_schema(described: Mapping[str, Any]) -> Mapping[str, Any]:
    contents = described.get("content", {})
    return contents.get("application/json", {}).get("schema", {})


def _render_schema(name: str, component: Mapping[str, Any]) -> Iterator[str]:
    """Render a table if a field has a description, else one paragraph."""
    yield f"### {name}"
    yield fill_paragraphs(component.get("description") or "")
    fields: Mapping[str, Any] = component.get("properties", {})
    required = component.get("required", ())
    spelled = {key: f"`{key}`" if key in required else f"`{key}`?" for key in fields}
    if any(field.get("description") for field in fields.values()):
        rows = ((spelled[key], describe_type(field), field.get("description") or "") for key, field in fields.items())
        yield render_table(("field", "type", "description"), rows)
    else:
        listed = "; ".join(f"{spelled[key]}: {describe_type(field)}" for key, field in fields.items())
        yield fill_paragraphs(listed or describe_type(component))


def describe_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a JSON value: of a field, a parameter or a body."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(map(describe_type, options)))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{choice}`" for choice in choices)
    if "items" in schema:
        return f"list of {describe_type(schema['items'])}"
    if values := schema.get("additionalProperties"):
        return f"map to {describe_type(values)}"
    return schema.get("format") or schema.get("type") or "any JSON value"
