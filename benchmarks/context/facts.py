"""Measures the fate of 200 planted facts: in the view, recalled in their own or other words, or lost.

The conversation has every kind of content that agents see: talk, logs, code, tables, and talk in Chinese. A line of a
log, of code or of a table does not name its subject: the answered call does, or the table's head.
"""

import asyncio
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.budgets.tables import print_table
from benchmarks.context.conversations import SYLLABLES, Conversation, open_conversation
from benchmarks.context.engine import SUMMARISERS, CompactedTranscript, build_policy
from benchmarks.context.kept import all_text
from benchmarks.context.survival import GENERATIONS, MEASURE, RUN, WINDOW, HiddenPassageMemory
from benchmarks.memory.conversations import ALSO_CALLED, FACTS, FIRMS, LOGS, PARTS, PROJECTS, REMARKS, REPLIES
from benchmarks.memory.kinds import CHINESE_FACTS, CHINESE_FIRMS, CHINESE_PARTS, CHINESE_REMARKS, CHINESE_SITES
from waystation.context.policy import StrategyName
from waystation.context.strategies import STRATEGIES
from waystation.context.transcript import Transcript
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.memory.qdrant.edge import QdrantEdgeMemory

SEED = 11
OF_EACH_KIND = 40
KINDS = ("talk", "log", "code", "table", "Chinese")
LINES = 24
"""Of a log, of code or of a table, of which two are asked for."""
COMPONENTS = (
    "uploader", "scheduler", "importer", "mailer", "renderer", "archiver", "crawler", "balancer", "tokeniser",
    "notifier", "exporter", "sampler", "validator", "replicator", "compressor", "dispatcher", "planner", "indexer",
    "watcher", "translator",
)  # fmt: skip
CONSTANTS = {
    "MAX_TRIES": "How often does the {component} start over before it gives up?",
    "TIMEOUT_S": "How long does the {component} wait for an answer, in seconds?",
    "BUFFER_BYTES": "How much memory does the {component} set aside for what comes in?",
    "POLL_MS": "In which rhythm does the {component} look for something new?",
}
COLUMNS = {"draught": "How deep is the water at {station}?", "ships": "How many vessels called at {station}?"}
HEAD = (
    "summariser", "strategy", "facts", "in view", "by recall, own words", "by recall, other words", "lost",
    *(f"lost of {kind}" for kind in KINDS),
)  # fmt: skip


class PlantedFact(NamedTuple):
    """A line that says a fact, and a question for it in other words."""

    kind: str
    line: str
    value: str
    question: str


@dataclass
class FactTeller:
    """Says facts, each once, and what nobody asks for."""

    chance: random.Random
    conversation: Conversation = field(default_factory=open_conversation)
    planted: list[PlantedFact] = field(default_factory=list[PlantedFact])

    def talk(self) -> None:
        """Two facts and two remarks."""
        for fact, place in self._facts(2):
            line = self.chance.choice(FACTS[fact].told).format(**place)
            self._plant("talk", line, place["value"], self._sought(fact, place))
            self.conversation.user(line)
            self._remark()

    def log(self) -> None:
        """Of one site, which none of its lines names."""
        project = self.chance.choice(PROJECTS)
        lines = [self._about(self.chance.choice(LOGS), project) for _ in range(LINES)]
        for fact, place in self._facts(2, project):
            line = f"{place['part']}: {FACTS[fact].logged.format(**place)}"
            self._plant("log", line, place["value"], self._sought(fact, place))
            lines.insert(self.chance.randrange(len(lines)), line)
        self._read(f"site log, {project}", lines)

    def code(self) -> None:
        """Of one component, which only its class names."""
        component = COMPONENTS[sum(one.kind == "code" for one in self.planted) // 2 % len(COMPONENTS)]
        lines = [f"    def step_{number}(self) -> None: ..." for number in range(LINES)]
        for name in self.chance.sample([*CONSTANTS], 2):
            value = str(self.chance.randrange(10_000, 99_999))
            line = f"    {name} = {value}"
            self._plant("code", line, value, CONSTANTS[name].format(component=component))
            lines.insert(self.chance.randrange(len(lines)), line)
        self._read(f"src/{component}.py", [f"class {component.capitalize()}:", *lines])

    def table(self) -> None:
        """Of stations, each of which is in no other."""
        stations = ["".join(self.chance.choices(SYLLABLES, k=4)).capitalize() for _ in range(LINES)]
        rows = [f"| {one} | {self._number(1.0)} | {self._number(100):.0f} |" for one in stations]
        for number in self.chance.sample(range(LINES), 2):
            place = self.chance.randrange(len(COLUMNS))
            value = rows[number].split(" | ")[1 + place].removesuffix(" |")
            self._plant("table", rows[number], value, [*COLUMNS.values()][place].format(station=stations[number]))
        self._read("harbours.md", [f"| station | {' | '.join(COLUMNS)} |", "| --- | --- | --- |", *rows])

    def chinese(self) -> None:
        """Two facts and two remarks."""
        count = 2
        while count:
            told, asked = self.chance.choice(CHINESE_FACTS)
            day = f"{self.chance.randrange(1, 13)}月{self.chance.randrange(1, 29)}日"
            values = {"firm": self.chance.choice(CHINESE_FIRMS), "number": f"{self.chance.randrange(900, 90_000)}"}
            where = {"site": self.chance.choice(CHINESE_SITES), "part": self.chance.choice(CHINESE_PARTS)}
            month, _, rest = day.partition("月")
            line = told.format(**where, **values, month=month, day=rest.removesuffix("日"))
            question = asked.format(**where)
            if any(one.question == question for one in self.planted):
                continue
            count -= 1
            value = next(one for one in (*values.values(), day) if one in line)
            self._plant("Chinese", line, value, question)
            self.conversation.user(line)
            self.conversation.user(self.chance.choice(CHINESE_REMARKS).format(**where))

    def _plant(self, kind: str, line: str, value: str, question: str) -> None:
        self.planted.append(PlantedFact(kind, line, value, question))

    def _facts(self, count: int, project: str = "") -> Iterator[tuple[str, dict[str, str]]]:
        while count:
            fact = self.chance.choice([*FACTS])
            place = {"project": project or self.chance.choice(PROJECTS), "part": self.chance.choice(PARTS)}
            if any(self._asks(one.question, fact, place) for one in self.planted):
                continue
            count -= 1
            yield fact, place | {"value": self._value(fact)}

    def _asks(self, question: str, fact: str, place: dict[str, str]) -> bool:
        return question in {one.format(**self._elsewhere(place)) for one in FACTS[fact].sought}

    def _sought(self, fact: str, place: dict[str, str]) -> str:
        return self.chance.choice(FACTS[fact].sought).format(**self._elsewhere(place))

    def _elsewhere(self, place: dict[str, str]) -> dict[str, str]:
        return place | {"part": ALSO_CALLED[place["part"]]}

    def _value(self, fact: str) -> str:
        number = self.chance.randrange(10_000, 1_000_000)
        return f"{self.chance.choice(FIRMS)} {number}" if fact in {"firm", "person", "cause"} else f"{number:,}"

    def _number(self, scale: float) -> float:
        return round(self.chance.uniform(1, 99) * scale, 2)

    def _about(self, text: str, project: str) -> str:
        return text.format(project=project, part=self.chance.choice(PARTS))

    def _remark(self) -> None:
        for said in (REMARKS, REPLIES):
            self.conversation.user(self._about(self.chance.choice(said), self.chance.choice(PROJECTS)))

    def _read(self, name: str, lines: Sequence[str]) -> None:
        self.conversation.call("", name=name)
        self.conversation.result("\n".join(lines))


def tell_facts(seed: int) -> FactTeller:
    """Some 200 facts, 40 of each kind, one kind after the other all the time."""
    teller = FactTeller(random.Random(seed))
    for _ in range(OF_EACH_KIND // 2):
        for tell in (teller.talk, teller.log, teller.code, teller.table, teller.chinese):
            tell()
    return teller


class FactOutcome(NamedTuple):
    """Of one fact."""

    kind: str
    in_view: bool
    own_words: bool
    other_words: bool

    @property
    def lost(self) -> bool:
        """Neither before the agent, nor to be had by a question in other words."""
        return not (self.in_view or self.other_words)


async def compute_outcomes(
    teller: FactTeller, engine: CompactedTranscript, recall: HiddenPassageMemory
) -> list[FactOutcome]:
    """After ten generations: a tenth of the conversation is said, then the context is taken for full."""
    said, policy, hidden = teller.conversation.messages, engine.policy, set[str]()
    for number, message in enumerate(said, 1):
        engine.say(message)
        if number * GENERATIONS % len(said) >= GENERATIONS:
            continue
        engine.policy = policy.for_too_many_messages(MEASURE.request(engine.shown))
        engine.compact()
        gone = {name for record in engine.transcript.compactions if record.type != "masked" for name in record.covered}
        await recall.store_passages(f"c{number}", [one for one in said if one.id in gone - hidden])
        hidden |= gone
    there = all_text(engine.shown)
    return [
        FactOutcome(
            one.kind,
            one.line in there,
            await recall.can_recall_words(one.line, one.line.replace(one.value, " ")),
            await recall.can_recall_words(one.line, one.question),
        )
        for one in teller.planted
    ]


async def _row(summariser: str, strategy: StrategyName) -> tuple[object, ...]:
    teller, embedder = tell_facts(SEED), WordLlamaEmbedder()
    with tempfile.TemporaryDirectory() as folder:
        memory = await QdrantEdgeMemory.open(Path(folder) / "memory", embedder.name, embedder.dimension)
        transcript = Transcript(run_id=RUN.run_id)
        engine = CompactedTranscript(
            transcript, build_policy(strategy, WINDOW), SUMMARISERS[summariser], measure=MEASURE
        )
        found = await compute_outcomes(teller, engine, HiddenPassageMemory(memory, embedder))
        await memory.aclose()
    hidden = [one for one in found if not one.in_view]
    lost = [fmean(one.lost for one in found if one.kind == kind) for kind in KINDS]
    shares = [
        fmean(one.in_view for one in found),
        fmean(one.own_words for one in hidden) if hidden else 1.0,
        fmean(one.other_words for one in hidden) if hidden else 1.0,
        fmean(one.lost for one in found),
        *lost,
    ]
    return summariser, f"`{strategy}`", len(found), *(f"{share:.1%}" for share in shares)


async def _all() -> list[tuple[object, ...]]:
    return [await _row(summariser, strategy) for summariser in SUMMARISERS for strategy in STRATEGIES]


def prove() -> None:
    """Print the table."""
    print_table(
        f"Planted facts after {GENERATIONS} generations of compaction, window {WINDOW:,}", HEAD, asyncio.run(_all())
    )
