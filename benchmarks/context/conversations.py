"""Conversations to compact: of any size from a seed, or over real documents; with what of them must not be lost."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from waystation.context.transcript import Message, Text, ToolResult, ToolUse, Transcript, build_user_message

READ = "read_document"
REREADABLE = frozenset({READ})
RUN_ID = "task-1/step-1"
VOCABULARY = """
bar buoy channel chart current depth draught ebb ferry fog gale harbour jetty keel ladder light lock mast mooring
pilot port quay reef rope sail shoal signal sluice sounding storm surge tide tow tug vessel wake wharf wind yard
approach before between crossing depends during enters every follows found gives holds keeps larger leaves lower
measured nearly notice observed often older passes raised reached records remains report rises river season
several shows since smaller station still surface taken through toward under until usual vary waits while within
"""
WORDS = VOCABULARY.split()
SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "qui",
    "ro",
    "su",
    "ta",
    "ve",
    "wi",
)
"""Names are made of three."""
CONTRACT = (
    "Find out why pilots were late in the last three seasons. Never edit the files under archive/. "
    "Do not contact the stations before the review is done. The report must name the source of every figure."
)
REMARKS = (
    "Also look at the ferries. You must not count cancelled crossings.",
    "Acceptance: every season has a table, and at most two of its cells are empty.",
    "Do not merge the two depth columns until I have seen both.",
    "Skip the weather for now, but always give wind in knots.",
    "Go on with the locks. Never round a depth.",
    "Do not restart the import just yet, it holds the lock on /var/lib/soundings/import.lock.",
    "At least one of the tugs was there twice: find out which.",
)
REMARK_EVERY = 40
"""Turns."""
OPEN_WORK = ("[TODO] compare the two depth columns", "[IN PROGRESS] table of the second season")
"""Items of the agent's plan that are not done to the very end."""
PINNED_REMARK = 1
"""Of the remarks, the one that its user pins."""


@dataclass
class Conversation:
    """A conversation as it grows, and what of it must not be lost."""

    messages: list[Message] = field(default_factory=list[Message])
    pinned: list[str] = field(default_factory=list[str])
    """Ids."""
    planted: dict[str, str] = field(default_factory=dict[str, str])
    """By identifier: the sentence that it was said in."""

    @property
    def transcript(self) -> Transcript:
        """All of it, nothing compacted."""
        return Transcript(run_id=RUN_ID, version=len(self.messages), messages=tuple(self.messages))

    def user(self, text: str, *, pin: bool = False) -> None:
        """The user says something."""
        message = build_user_message(self._next, text)
        self.messages.append(message)
        if pin:
            self.pinned.append(message.id)

    def call(self, said: str, **arguments: str | int) -> None:
        """The agent says something and asks for a document; it waits."""
        call = ToolUse(id=f"c{len(self.messages)}", name=READ, input=dict(arguments))
        self.messages.append(Message(id=self._next, role="assistant", blocks=(Text(text=said), call)))

    def result(self, content: str) -> None:
        """The document that it waits for comes."""
        (call,) = self.messages[-1].tool_uses
        result = ToolResult(tool_use_id=call.id, content=content)
        self.messages.append(Message(id=self._next, role="user", blocks=(result,)))

    @property
    def _next(self) -> str:
        return f"m{len(self.messages) + 1}"


@dataclass
class TextGenerator:
    """Makes up what is said: the same from the same seed."""

    chance: random.Random

    def prose(self, tokens: int) -> str:
        """Sentences of about so many tokens together (four characters each)."""
        sentences: list[str] = []
        left = tokens * 4
        while left > 0:
            words = self.chance.choices(WORDS, k=min(12, max(2, left // 6)))
            sentences.append(f"{' '.join(words).capitalize()}.")
            left -= len(sentences[-1]) + 1
        return " ".join(sentences)

    def finding(self) -> tuple[str, str]:
        """An identifier, and a sentence with it that nobody could guess."""
        first, second = self.chance.sample(WORDS, 2)
        name = "".join(self.chance.choices(SYLLABLES, k=3)).capitalize()
        number = self.chance.randrange(10_000, 1_000_000)
        identifier = self.chance.choice(
            [
                f"records/{first}/{second}-{number}.csv",
                f"E{first.upper()}_{number}",
                f"https://{first}.example/{second}/{number}",
                f"{number:,}",
            ]
        )
        return identifier, f"The {first} of the {name} and its {second} are in {identifier} of the log."


def open_conversation() -> Conversation:
    """A conversation with its first message."""
    conversation = Conversation()
    conversation.user(CONTRACT)
    return conversation


def add_turns(conversation: Conversation, writer: TextGenerator, tokens: int) -> Iterator[None]:
    """The agent's turns, endlessly, of about so many tokens each; stops after each call, before its result comes.

    It first says what its plan is. What it finds is said by itself and by what it reads, in turn.
    """
    number = 0
    while True:
        number += 1
        identifier, sentence = writer.finding()
        conversation.planted[identifier] = sentence
        by_agent, by_document = ("", sentence) if number % 2 else (sentence, "")
        said = f"{writer.prose(min(120, tokens // 5))} {by_agent}"
        said = "\n".join([*OPEN_WORK, said]) if number == 1 else said
        conversation.call(said, name=f"{writer.chance.choice(WORDS)}.md", first_line=number)
        yield
        size = int(tokens * writer.chance.lognormvariate(-0.5, 0.8)) - 120
        conversation.result(f"{writer.prose(min(max(20, size), 8 * tokens))} {by_document}")
        if number % REMARK_EVERY == 0:
            place = number // REMARK_EVERY - 1
            conversation.user(REMARKS[place % len(REMARKS)], pin=place == PINNED_REMARK)


def build_long_conversation(seed: int) -> Conversation:
    """Of some 200,000 tokens. It ends while a call waits for its result."""
    conversation = open_conversation()
    for _ in islice(add_turns(conversation, TextGenerator(random.Random(seed)), 500), 400):
        pass
    return conversation


def generate_transcript(messages: int, tokens: int, seed: int = 1) -> Transcript:
    """A conversation of so many messages of the same size, and about so many tokens."""
    conversation, writer = open_conversation(), TextGenerator(random.Random(seed))
    each = tokens // messages
    while len(conversation.messages) < messages:
        _, sentence = writer.finding()
        conversation.call(f"{sentence} {writer.prose(each - 50)}", name="log.md", first_line=len(conversation.messages))
        conversation.result(writer.prose(each - 8))
    return conversation.transcript
