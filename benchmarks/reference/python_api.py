"""The page of the Python API, from signatures and docstrings."""

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from benchmarks.reference.markdown import WIDTH, fill_paragraphs, render_page
from waystation import sdk
from waystation.client import sdk_values
from waystation.kernel import errors

INTRODUCTION = """
`from waystation import Waystation, AsyncWaystation, errors`. docs/how-to/use-from-python.md has examples.

`Waystation` has the same methods as `AsyncWaystation`, but each of them blocks until it is done. Amounts are written as
in commands: `200k`, `$2.00`, `600k+$2.00`.
"""
SECTION = re.compile(r"^(Args|Returns|Raises):\n", re.MULTILINE)
ITEM = re.compile(r"^    (?P<name>[\w*, ]+): ", re.MULTILINE)


def render_python_api_page() -> str:
    """Render the client, the values that it returns, and the errors that it raises."""
    blocks = [fill_paragraphs(INTRODUCTION), *_render_class(sdk, "AsyncWaystation"), "## Values"]
    for node in _parse_module(sdk_values).body:
        if isinstance(node, ast.ClassDef):
            blocks += _render_class(sdk_values, node.name, "###")
    tree = inspect.getdoc(errors) or ""
    blocks += ["## Errors", "```text\n" + tree.partition("\n\n")[2] + "\n```"]
    return render_page("Python API", blocks)


def _parse_module(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _render_class(module: ModuleType, name: str, marks: str = "##") -> Iterator[str]:
    (node,) = (one for one in _parse_module(module).body if isinstance(one, ast.ClassDef) and one.name == name)
    yield f"{marks} {name}"
    yield render_docstring(ast.get_docstring(node) or "")
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and not _is_private(ast.unparse(one.target))]
    if fields:
        yield "\n".join(f"- `{ast.unparse(one)}`" for one in fields)
    for member in node.body:
        if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) or not ast.get_docstring(member):
            continue
        if "classmethod" in map(ast.unparse, member.decorator_list):  # how we make the values
            continue
        if member.name == "__init__" or not _is_private(member.name):
            yield f"```python\n{render_signature(member, name)}\n```"
            yield render_docstring(ast.get_docstring(member) or "")


def _is_private(name: str) -> bool:
    return name.startswith("_")


def render_signature(function: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> str:
    """Return the signature without `self`, on one line, or with a line for each parameter."""
    decorators = {ast.unparse(one) for one in function.decorator_list}
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    if "property" in decorators:
        return f"{function.name}{returns.replace(' ->', ':')}"
    first = function.args.args[:1]
    if first and first[0].arg in {"self", "cls"}:
        del function.args.args[0]
    name = owner if function.name == "__init__" else function.name
    prefix = "await " if isinstance(function, ast.AsyncFunctionDef) else ""
    parameters = list(_split_parameters(function.args))
    end = "" if name == owner else returns
    line = f"{prefix}{name}({', '.join(parameters)}){end}"
    return (
        line
        if len(line) <= WIDTH
        else "\n".join([f"{prefix}{name}(", *(f"    {one}," for one in parameters), f"){end}"])
    )


def _split_parameters(arguments: ast.arguments) -> Iterator[str]:
    """Each parameter as it stands in the signature."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    yield from map(_unparse_parameter, positional, defaults)
    if arguments.kwonlyargs:
        yield "*"
        yield from map(_unparse_parameter, arguments.kwonlyargs, arguments.kw_defaults)


def _unparse_parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default is not None else "")


def render_docstring(docstring: str) -> str:
    """Return a docstring in Google style as Markdown: prose, then a list for each of its sections."""
    prose, *sections = SECTION.split(docstring)
    blocks = [fill_paragraphs(prose)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        items = ITEM.split(body)
        if title == "Returns" or len(items) == 1:
            blocks.append(fill_paragraphs(f"{title}: {inspect.cleandoc(body)}"))
            continue
        names, texts = items[1::2], items[2::2]
        lines = [fill_paragraphs(f"- `{name}`: {text}", "  ") for name, text in zip(names, texts, strict=True)]
        blocks.append("\n".join([f"{'Arguments' if title == 'Args' else title}:", "", *lines]))
    return "\n\n".join(blocks)
