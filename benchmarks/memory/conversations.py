"""Long conversations from a seed, with questions whose evidence is known: which message has it, and in which words.

Every project has the same parts and every part the same kinds of facts, so that most words of a question also occur in
messages that do not answer it. A third of the answers name neither project nor part: the question before them did.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from waystation.context.transcript import Message, MessageRole, Text, ToolResult, ToolUse

PROJECTS = (
    "Halden bridge", "Norvik terminal", "Quay 7", "the Alder tunnel", "Lindholm depot", "the Sorrel viaduct",
    "Marsh Lane school", "the Osprey ferry", "Kestrel data centre", "the Tamsin reservoir", "Brook Street clinic",
    "the Varga library",
)  # fmt: skip
PARTS = (
    "roof", "south gate", "heating", "lift", "drainage", "backup generator", "fire doors", "control software",
    "foundations", "signage", "car park", "ventilation",
)  # fmt: skip
ALSO_CALLED = {
    "roof": "roofing", "south gate": "southern entrance", "heating": "radiators", "lift": "elevator",
    "drainage": "waste water pipes", "backup generator": "emergency power", "fire doors": "doors against fire",
    "control software": "control program", "foundations": "footings", "signage": "signs", "car park": "parking area",
    "ventilation": "air supply",
}  # fmt: skip
"""Parts in the words of half the questions: who asks later does not remember the very word."""
FIRST = (
    "Maria", "Daniel", "Priya", "Thomas", "Elena", "Ahmed", "Sophie", "James", "Ingrid", "Carlos", "Hannah", "Victor",
    "Laura", "Peter", "Amina", "Robert",
)  # fmt: skip
LAST = (
    "Schneider", "Okafor", "Larsen", "Moreno", "Whitfield", "Kowalski", "Tanaka", "Brennan", "Petrov", "Hughes",
    "Fischer", "Nakamura", "Sullivan", "Ibrahim",
)  # fmt: skip
FIRMS = (
    "Nordbau", "Helix Steel", "Tarn & Sons", "Veritas Build", "Ostara Works", "Pinnacle Supply", "Graywater",
    "Lumen Systems", "Castor Group", "Redfern Supply",
)  # fmt: skip
CAUSES = (
    "a cracked seal", "the wrong cable size", "water in the junction box", "a missing permit", "a slow clock",
    "salt in the concrete", "a mislabelled valve", "an expired certificate", "loose bolts", "a software rollback",
)  # fmt: skip
MONTHS = ("January", "February", "March", "April", "May", "June", "September", "October", "November")


class Fact(NamedTuple):
    """A kind of fact: how one is asked about in passing, told outright, told in reply, logged, and sought later."""

    asked: str
    told: tuple[str, ...]
    replied: tuple[str, ...]
    logged: str
    sought: tuple[str, ...]


FACTS = {
    "firm": Fact(
        "Which firm is going to do the {part} at {project}?",
        ("By the way, {value} got the order for the {part} at {project}.",
         "We signed with {value} for the {part} of {project} this morning."),
        ("{value}, they were the cheapest of the three.", "In the end we took {value}, because of the warranty."),
        "contract awarded to {value}",
        ("Who won the contract for the {part} of {project}?", "Which supplier does the {part} at {project}?"),
    ),
    "person": Fact(
        "And who looks after the {part} at {project} from now on?",
        ("{value} has taken over the {part} at {project}.", "For the {part} of {project} please write to {value}."),
        ("{value}, since the reshuffle.", "That is {value} now, I talked to the team yesterday."),
        "owner set to {value}",
        ("Who is responsible for the {part} at {project}?", "Whom do I contact about the {part} of {project}?"),
    ),
    "cost": Fact(
        "What do we have left for the {part} at {project}?",
        ("The {part} at {project} must not cost more than {value} euros.",
         "I moved {value} euros to the {part} of {project}."),
        ("{value} euros, and not a cent more.", "After the last invoice it is {value} euros."),
        "budget line {value} EUR",
        ("How much money is there for the {part} of {project}?", "What is the budget of the {part} at {project}?"),
    ),
    "date": Fact(
        "When can they start on the {part} at {project}?",
        ("The {part} at {project} has to be ready by {value}.", "They pushed the {part} of {project} back to {value}."),
        ("Not before {value}, the crew is elsewhere until then.", "{value}, if the weather holds."),
        "rescheduled to {value}",
        ("What is the deadline for the {part} of {project}?", "Until when is the {part} at {project} due?"),
    ),
    "cause": Fact(
        "Do we know by now why the {part} at {project} failed?",
        ("The trouble with the {part} at {project} came from {value}.",
         "They found {value} behind the outage of the {part} of {project}."),
        ("It was {value}, of all things.", "Yes: {value}. Nobody had looked there."),
        "incident closed, cause: {value}",
        ("What was the reason for the failure of the {part} at {project}?", "Why did the {part} of {project} break?"),
    ),
}  # fmt: skip
REMARKS = (
    "I looked at {project} again, and the {part} still worries me a bit.",
    "Could you put the {part} on the list for Thursday?",
    "The photos of the {part} are in the shared folder, in case you need them for the slides.",
    "Somebody from the council asked about {project}, I said we would come back to them next week.",
    "Thanks. Let me think about that over lunch, my head is full of numbers right now.",
    "The meeting with the neighbours was moved again, there is no new time yet.",
    "We should compare this with what we did last year, I remember a similar case.",
    "My train is late, so please go on without me and send me the minutes.",
    "Did you see the drawing that came with the last mail? The stairs look steep to me.",
    "Let us keep the weekly call short, half an hour is plenty.",
)
REPLIES = (
    "Understood, I will keep an eye on it.",
    "Noted. Shall I draft a message about that?",
    "Done; it is on the list now, with a reminder two days before.",
    "I can summarise what we have on {project} so far, if you like.",
    "There are two open points on the {part}, neither is urgent.",
    "All right. Anything else before I go on with the tables?",
)
LOGS = (
    "{part}: inspection booked, visitors have to sign in at the gate",
    "{part}: two photos uploaded",
    "delivery of pallets, unloaded by the night shift without damage",
    "rain from noon on, work outside stopped for three hours",
    "toolbox talk on ladders and harnesses, eleven people took part",
    "crane checked, next check in four weeks",
    "{part}: status unchanged, waiting for an answer",
    "one visitor without a helmet was sent back",
)
STRETCH = 6
"""Facts before the talk turns to another project."""


class Question(NamedTuple):
    """What is asked later, and the words that answer it."""

    text: str
    message: str
    """Id of the message that has them."""
    evidence: str


@dataclass
class Dialogue:
    """A conversation as it grows, and the questions that it answers."""

    chance: random.Random
    project: str = PROJECTS[0]
    """What the talk is about now."""
    messages: list[Message] = field(default_factory=list[Message])
    questions: list[Question] = field(default_factory=list[Question])

    def say(self, role: MessageRole, text: str) -> str:
        """One message; its id."""
        message = Message(id=f"m{len(self.messages) + 1}", role=role, blocks=(Text(text=text),))
        self.messages.append(message)
        return message.id

    def chat(self) -> None:
        """Nothing that is asked for later."""
        self.say("user", self._about(self.chance.choice(REMARKS)))
        self.say("assistant", self._about(self.chance.choice(REPLIES)))

    def tell(self, kind: str, part: str) -> None:
        """A fact, told outright, in reply to a question, or somewhere in a long result."""
        fact, value = FACTS[kind], self._value(kind)
        place = {"project": self.project, "part": part, "value": value}
        match self.chance.randrange(3):
            case 0:
                evidence = self.chance.choice(fact.told).format(**place)
                message = self.say("user", evidence)
                self.say("assistant", self._about(self.chance.choice(REPLIES)))
            case 1:
                self.say("assistant", fact.asked.format(**place))
                evidence = self.chance.choice(fact.replied).format(**place)
                message = self.say("user", evidence)
                self.say("assistant", "Good to know, I have written it down.")
            case _:
                evidence = f"{part}: {fact.logged.format(**place)}"
                message = self._read(evidence)
        sought = place | {"part": self.chance.choice([part, ALSO_CALLED[part]])}
        self.questions.append(Question(self.chance.choice(fact.sought).format(**sought), message, evidence))

    def _read(self, line: str) -> str:
        """A long log of the project with this line in it; the id of its message."""
        lines = [
            f"2026-{self.chance.randrange(1, 13):02}-{self.chance.randrange(1, 29):02} "
            + self._about(self.chance.choice(LOGS))
            for _ in range(self.chance.randrange(20, 60))
        ]
        lines.insert(self.chance.randrange(len(lines)), line)
        name = f"site log, {self.project}"
        call = ToolUse(id=f"c{len(self.messages)}", name="read_document", input={"name": name})
        self.messages.append(Message(id=f"m{len(self.messages) + 1}", role="assistant", blocks=(call,)))
        result = ToolResult(tool_use_id=call.id, content="\n".join(lines))
        message = Message(id=f"m{len(self.messages) + 1}", role="user", blocks=(result,))
        self.messages.append(message)
        return message.id

    def _about(self, text: str) -> str:
        return text.format(project=self.project, part=self.chance.choice(PARTS))

    def _value(self, kind: str) -> str:
        choose = self.chance.choice
        match kind:
            case "firm":
                return choose(FIRMS)
            case "person":
                return f"{choose(FIRST)} {choose(LAST)}"
            case "cost":
                return f"{self.chance.randrange(4, 900)},{self.chance.randrange(1_000):03}"
            case "date":
                return f"{self.chance.randrange(1, 29)} {choose(MONTHS)}"
            case _:
                return choose(CAUSES)


def build_dialogue(seed: int, facts: int = 120) -> Dialogue:
    """A conversation of some six messages a fact: about 750 messages and 50,000 tokens as it stands."""
    conversation = Dialogue(random.Random(seed))
    chance = conversation.chance
    told = set[tuple[str, str, str]]()
    while len(told) < facts:
        if len(told) % STRETCH == 0:
            conversation.project = chance.choice(PROJECTS)
        fact = (chance.choice(list(FACTS)), conversation.project, chance.choice(PARTS))
        if fact in told:
            continue
        told.add(fact)
        for _ in range(chance.randrange(1, 4)):
            conversation.chat()
        conversation.tell(fact[0], fact[2])
    return conversation
