"""Loads question sets with known answers from YAML, and their documents; every error names file and line."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import JsonValue, TypeAdapter, ValidationError

from waystation.documents.document_loading import load_documents, sanitize_document_name, write_package_documents
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import BadInput
from waystation.kernel.value import extract_validation_faults
from waystation.plugins.evaluation.scores import GoldQuestion, QuestionSet

SHIPPED = Path(__file__).parent / "shipped"
_MAX_BYTES = 4_000_000
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def find_question_set(name: str) -> Path:
    """Return the file at that path, or the question set of that name that ships with Waystation. Raises BadInput."""
    if Path(name).is_file():
        return Path(name)
    shipped = sorted(path.stem for path in SHIPPED.glob("*.yaml"))
    if name in shipped:
        return SHIPPED / f"{name}.yaml"
    raise BadInput(
        f"there is no question set {name}: give a YAML file, or the name of a built-in set ({_list(shipped)})"
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def load_question_set(path: Path) -> QuestionSet:
    """Load a question set. Every scalar is text, so that `3.10` stays what it is. Raises BadInput."""
    node = _composed(path, _text(path))
    if twice := next(_twice(node), None):
        raise _at(path, twice, "this key is given twice")
    try:
        return QuestionSet.model_validate(_JSON.validate_python(yaml.BaseLoader("").construct_document(node)))
    except yaml.YAMLError as error:
        raise BadInput(f"{path} has a key that is not a word: write keys like `questions:`") from error
    except ValidationError as error:
        fault = extract_validation_faults(error)[0]
        found, where = _node(node, fault.place)
        raise _at(path, found, f"{where}: {fault.words}" if where else fault.words) from None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise BadInput(f"{path} has more than {_MAX_BYTES:,} bytes, which is too large for a question set")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {(error.strerror or 'unknown error').lower()}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text") from error


def _composed(path: Path, text: str) -> yaml.Node:
    try:
        # An anchor that is referenced a thousand times would be copied a thousand times.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.BaseLoader)):
            raise BadInput(f"{path} uses aliases (*name), which are not supported: write the values out")
        node = yaml.compose(text, yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadInput(f"{path}{line}: invalid YAML ({error.problem or 'it cannot be read'})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{path} is not YAML: it has a character that YAML does not allow, or is nested too deeply"
        ) from error
    if node is None:
        raise BadInput(f"{path} is empty: it needs a name and questions")
    return node


def _at(path: Path, node: yaml.Node, why: str) -> BadInput:
    return BadInput(f"{path}, line {node.start_mark.line + 1}: {why}")


def _pairs(node: yaml.Node) -> Sequence[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else ()


def _parts(node: yaml.Node) -> Sequence[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else [value for _, value in _pairs(node)]


def _twice(node: yaml.Node) -> Iterator[yaml.Node]:
    """Yield keys that occur twice in one mapping: the first would be lost."""
    seen: set[str] = set()
    for key, _ in _pairs(node):
        if str(key.value) in seen:
            yield key
        seen.add(str(key.value))
    for part in _parts(node):
        yield from _twice(part)


def _node(node: yaml.Node, place: Sequence[int | str]) -> tuple[yaml.Node, str]:
    """Return the node at that place, as deep as it exists, and its name there."""
    name = ""
    for step in place:
        if isinstance(step, int) and isinstance(node, yaml.SequenceNode) and step < len(node.value):
            node, name = node.value[step], ""
            continue
        name = str(step) if isinstance(step, str) else name
        found = next(((key, value) for key, value in _pairs(node) if key.value == step), None)
        if found is None:
            break
        # A key locates an error better than its value.
        node = found[1] if isinstance(found[1], yaml.SequenceNode | yaml.MappingNode) else found[0]
    return node, name


class EvaluationQuestion(NamedTuple):
    """A question with its documents."""

    gold: GoldQuestion
    documents: tuple[SourceDocument, ...]

    @property
    def lines(self) -> Mapping[str, Sequence[str]]:
        """Lines of the documents, by name."""
        return {document.name: document.text.split("\n") for document in self.documents}


def load_evaluation_questions(question_set: QuestionSet, folder: Path, scratch: Path) -> tuple[EvaluationQuestion, ...]:
    """Load each question with its documents, whose paths are relative to the folder.

    `scratch`: folder for the descriptions of installed packages.

    Raises:
        BadInput: Something is missing, or a gold document is not among the question's documents; the message names the
            question.
    """
    shelf = _Shelf(question_set, folder, scratch)
    found: list[EvaluationQuestion] = []
    for gold in question_set.questions:
        documents = shelf.documents(_own(question_set, gold))
        names = [document.name for document in documents]
        if not documents:
            raise BadInput(
                f"question {gold.id} has no documents: give documents or packages, for the question or for "
                "the whole set"
            )
        if clash := next((name for name in names if names.count(name) > 1), None):
            raise BadInput(f"question {gold.id}: two documents have the name {clash}")
        if unknown := next((name for name in gold.cites if name not in names), None):
            raise BadInput(
                f"question {gold.id}: `cites` names {unknown}, which is not a document of this question "
                f"(its documents: {_list(names[:5])}{', …' if len(names) > 5 else ''})"
            )
        found.append(EvaluationQuestion(gold, tuple(documents)))
    return tuple(found)


def _own(question_set: QuestionSet, gold: GoldQuestion) -> GoldQuestion | QuestionSet:
    """Return where the documents of the question are named: the question itself, or its set."""
    return gold if gold.documents or gold.packages else question_set


def _inside(folder: Path, entry: str, question: str) -> Path:
    """Resolve an entry within the folder. A set may come from a stranger, and what it names is sent to a model: no link
    and no `..` may lead to keys.

    Raises BadInput.
    """
    path = folder / entry
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            f"question {question}: the document {entry} is outside the folder {folder}: put it into that folder"
        )
    if not path.exists():
        raise BadInput(f"question {question}: {path} does not exist")
    return path


class _Shelf:
    """All documents of a set, read once and together: starting a reader for each would wait for each."""

    def __init__(self, question_set: QuestionSet, folder: Path, scratch: Path) -> None:
        """Read the documents. Raises BadInput, naming the question, if something is missing."""
        self._folders: dict[str, tuple[SourceDocument, ...]] = {}
        self._files: dict[str, Path] = {}
        installed = {path.stem: path for path in write_package_documents(scratch)}
        for gold in question_set.questions:
            own = _own(question_set, gold)
            for package in own.packages:
                if package not in installed:
                    raise BadInput(f"question {gold.id}: the package {package} is not installed")
                self._files[f"{package}.md"] = installed[package]
            for entry in own.documents:
                path = _inside(folder, entry, gold.id)
                if not path.is_dir():
                    self._files[entry] = path
                elif entry not in self._folders:
                    self._folders[entry] = load_documents([path]).documents
        once = {path.resolve(): path for path in self._files.values()}
        read = load_documents([*once.values()]).documents if once else ()
        self._read = dict(zip(once, read, strict=True))

    def documents(self, own: GoldQuestion | QuestionSet) -> list[SourceDocument]:
        """Return the documents in the order in which they are named, packages first; files under the names that the set
        gives them.
        """
        found = [self._file(f"{package}.md") for package in own.packages]
        for entry in own.documents:
            found += self._folders.get(entry) or [self._file(entry)]
        return found

    def _file(self, name: str) -> SourceDocument:
        return self._read[self._files[name].resolve()].replace(name=sanitize_document_name(name))
