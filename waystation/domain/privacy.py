"""Which places text goes to, and what is replaced at each of them under each policy."""

from enum import IntEnum, StrEnum


class Policy(StrEnum):
    """How much is replaced: a setting of the worker."""

    STANDARD = "standard"
    """Secrets and direct identifiers before a model call; names too before summariser, memory and Temporal."""
    STRICT = "strict"
    """Names too before any model call."""
    SECRETS_ONLY = "secrets-only"
    """Secrets everywhere, and nothing else."""

    @property
    def text(self) -> str:
        """What is replaced, and where."""
        match self:
            case Policy.STANDARD:
                return "secrets and identifiers are replaced before a model call, names too before summaries and memory"
            case Policy.STRICT:
                return "secrets, identifiers and names are replaced before a model call"
            case Policy.SECRETS_ONLY:
                return "secrets are replaced before a model call; identifiers and names are not"


class Treatment(IntEnum):
    """What is replaced in a text; each replaces what the one before it does."""

    ORIGINAL = 0
    """Nothing."""
    SECRETS = 1
    """Keys, tokens, passwords."""
    IDENTIFIERS = 2
    """And what leads to one person or machine: mail, phone, card, IBAN, national ids, IP, what own recognisers find."""
    NAMES = 3
    """And names of people and places."""
    NO_TEXT = 4
    """There is nothing to replace, because only references and numbers go there."""


class Place(StrEnum):
    """A kind of place where text goes, or must not go."""

    REQUEST = "stored requests"
    """Question and instructions, as handed in."""
    DOCUMENT = "stored documents"
    """The text of a task's documents, as handed in."""
    VAULT = "vault"
    """What placeholders stand for."""
    MODEL_OUTPUT = "model output"
    """Of agents and planner. They were told of no originals, and may still guess, recite or decode one."""
    TOOL_ARGUMENT = "tool arguments"
    """Notes, findings and sections among them."""

    USER_INPUT = "user input"
    """Question and instructions on their way to the planner."""
    CONTRACT = "contracts"
    """What an agent is told at first: request, step, and what it recalls."""
    TOOL_RESULT = "tool results"
    """Documents' passages, notes and findings among them, and results that were too long for a context."""
    REPORT = "reports"

    COMPRESSED = "compressed messages"
    """What the summariser reads, and the passages in memory, those of documents among them."""
    SUMMARY = "summaries"
    WISH = "instructions for compactions"
    QUERY = "queries to memory"
    TITLE = "titles"
    """Of tasks and steps: in workflow history, in summaries of activities and workflows, and in webhooks."""
    QUESTION = "questions"
    """What a person is asked before a tool is called, its arguments included: in workflow history."""

    HISTORY = "workflow history"
    """Apart from titles and questions."""
    SEARCH_ATTRIBUTE = "search attributes"
    HEARTBEAT = "heartbeats"
    FAILURE = "failure messages"
    LOG = "logs"
    METRIC = "metrics"
    WEBHOOK = "webhooks"
    """Apart from titles."""


def treatment(place: Place, policy: Policy) -> Treatment:
    """What is replaced in a text before it goes to this place."""
    match place:
        case Place.REQUEST | Place.DOCUMENT | Place.VAULT:
            return Treatment.ORIGINAL
        case (
            Place.MODEL_OUTPUT
            | Place.TOOL_ARGUMENT
            | Place.USER_INPUT
            | Place.CONTRACT
            | Place.TOOL_RESULT
            | Place.REPORT
        ):
            return _before_models(policy)
        case Place.COMPRESSED | Place.SUMMARY | Place.WISH | Place.QUERY | Place.TITLE | Place.QUESTION:
            return Treatment.SECRETS if policy is Policy.SECRETS_ONLY else Treatment.NAMES
        case (
            Place.HISTORY
            | Place.SEARCH_ATTRIBUTE
            | Place.HEARTBEAT
            | Place.FAILURE
            | Place.LOG
            | Place.METRIC
            | Place.WEBHOOK
        ):
            return Treatment.NO_TEXT


def _before_models(policy: Policy) -> Treatment:
    match policy:
        case Policy.STANDARD:
            return Treatment.IDENTIFIERS
        case Policy.STRICT:
            return Treatment.NAMES
        case Policy.SECRETS_ONLY:
            return Treatment.SECRETS
