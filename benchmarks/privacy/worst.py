"""How long redaction takes at worst: texts made to be slow, and random stretches of what is installed here.

Secrets and identifiers alone: the language model, which finds names, takes its time for every text alike.
"""

import asyncio
import random
import sysconfig
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.budgets.tables import show
from benchmarks.privacy.finders import KEY
from waystation.adapters.presidio.redactor import PresidioRedactor
from waystation.domain.privacy import Place

SIZE = 100_000
"""Characters of a pumped text; a stretch has at most as many."""
STRETCHES, SEED = 10_000, 1
MOST_SECONDS = 1.0
SHOWN = 12
_SUFFIXES = frozenset(
    [
        ".py",
        ".pyi",
        ".md",
        ".rst",
        ".txt",
        ".json",
        ".yaml",
        ".toml",
        ".cfg",
        ".html",
        ".js",
        ".css",
        ".csv",
        ".xml",
        ".proto",
        ".sh",
        ".ini",
    ]
)
_LEAST_FILE = 500
UNITS = (
    *("<", "a.", "a@", "1-", "1 ", "1.", "1,", "0", "9", "A", "a", "Z9", "aB3", "f", "deadbeef", "-", "_", "*", "***", "=", "&", "|"),
    *("[", "]", "[]", "(", ")", "{", "}", "()", '"', "'", "`", "\\", '\\"', "/", "//", "/*", "a/", "a-", "a_", ":", "::::", ";", "%", "~"),
    *("\n", "\t", " ", "\r\n", " \n", "\n ", "a  ", "- ", "- a\n", "# ", "> ", ". ", "...", "\x00", "\x1b[", "\\n", "\\n\\r"),
    *("e\u0301", "\u0301", "\u200b", "a\u200b", "а", "aа", "日本", "é", "İ", "ſ", "ß", "\ufffc", "<\ufffc>", "密码是", "パスワード:"),
    *("password:", "password: ", "password=", "pwd=", "pass ", "passwords", "passwords=[", "passwords = [a ", "passwords = ['a', "),
    *("key=", "key ", "token ", "secret=", "access key", "password is ", "password for a ", "pwd=a1{2 ", "x(pwd=a1 ", '"password":"a\\'),
    *("passwords:\n - a\n", "kind: Secret\n", "kind: Secret\n---\n", "data:\n a: b\n", " data:\n", "<password>", "<password>a ", "<a "),
    *('name="password" value=', "name: password\nvalue: ", 'set("password", "', "insert into t (password) values (", "(1,'a'),"),
    *("| password |\n", "password,a\n", "password,", "a,", "a|", "a|b\n", "a;", "a\t", "a b\n", "tel,", "tel ", "tel: 1 ", "phone 1"),
    *("-----BEGIN ", "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n", "MHcCAQEEIBdA", "MHcCAQEEIBdAMHcCAQEEI! ", "MHcCA+/="),
    *("+1 ", "+", "(212) ", "212-555-0147 ", "212 555 0147 ", "0123 ", "01 ", "card 4", "4111 1111 1111 1111 ", "4111111111111111"),
    *("DE89 3704 0044 0532 0130 00 ", "AA00 AAAA ", "iban ", "PESEL 1 ", "PESEL 44051401359 ", "AB123456C ", "ssn 1", "123-45-6789 "),
    *("passport 1", "account 1", "1.2.3.4 ", "1.2.3.4", "2001:db8::1 ", "[::", "00:", "00:11:22:33:44:55 ", "0011.", "0x0", "bc1", "999."),
    *("a@a.a", "a@a-", "a@b.com ", "a@b.com", "a.a@a.a-a@", "!", '"a"@', "a%40", "a%40a-", "a [at] ", "a [dot] ", "a@b@", "=a@b.com"),
    *("http://", "http://a:b@", "://", "a://a:", "user:pass@", "a:1:a:a:", "*:", "?key=", "&key=", "?a.key=", "cookie: a=", "a=b; "),
    *("authorization: ", "Authorization: Basic ", "bearer ", "basic a", 'response="', "JSESSIONID=", '-H "key: ', '-b "a=', "WIFI:A:", "WIFI:"),
    *("curl ", "curl -u ", "mysql -p", "zip ", "docker login ", "login a passw ", "account a password a ", "htpasswd -b ", "net use a "),
    *("sk-", "eyJ", "-eyJ", "eyJaaaaaaaa.", "-SG.", "xoxb-", "$2a$", "key-", "1:AA", "12345678:AA", "{\"a\":", '{"a":{"b":', "<PERSON_", "task-"),
    *("<PERSON_0123456789ab>", "<PERSON_0123456789ab", "2001-01-01 ", "[a:1", "[a:1] ", "Ada ", "Ada-", "Ada Lovelace <", "Author: Ada ", "de "),
)  # fmt: skip
"""Repeated to a whole text each: what patterns begin with, what they repeat, and what they never find an end of."""


class Timed(NamedTuple):
    """A text, by what it was made of, and its redaction in seconds of this process's computing."""

    what: str
    characters: int
    seconds: float


def pumped(size: int = SIZE) -> Iterator[tuple[str, str]]:
    """Each unit again and again, in one line or as many as it has, with an end that spoils what began before it."""
    for unit in UNITS:
        yield repr(unit), (unit * (size // len(unit) + 1))[: size - 1] + "!"


def stretches(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Random ones, of random length, of the text files in this environment."""
    folder = Path(sysconfig.get_paths()["purelib"])
    files = sorted(
        path for path in folder.rglob("*") if path.suffix in _SUFFIXES and _LEAST_FILE < path.stat().st_size < 10 * SIZE
    )
    drawn = random.Random(seed)
    for _ in range(count):
        path = drawn.choice(files)
        text = path.read_text("utf-8", "replace")
        start, length = drawn.randrange(len(text)), int(SIZE ** drawn.uniform(0.4, 1))
        yield f"{path.relative_to(folder)}, from {start}", text[start : start + length]


def timed(texts: Iterable[tuple[str, str]]) -> list[Timed]:
    """The slowest first."""

    async def all_of_them() -> list[Timed]:
        with closing(PresidioRedactor(KEY)) as redactor:
            await redactor.warm_up()
            results = list[Timed]()
            for what, text in texts:
                start = time.process_time()
                await redactor.redact([text], Place.TOOL_RESULT, "t")
                results.append(Timed(what, len(text), time.process_time() - start))
            return results

    return sorted(asyncio.run(all_of_them()), key=lambda one: -one.seconds)


def prove() -> None:
    """Print the slowest. Raises AssertionError where one took over a second."""
    for title, texts in (
        (f"{len(UNITS)} pumped texts of {SIZE:,} characters", pumped()),
        (f"{STRETCHES:,} stretches of installed packages, seed {SEED}", stretches(STRETCHES, SEED)),
    ):
        results = timed(texts)
        rows = [(what, f"{characters:,}", f"{seconds:.2f}") for what, characters, seconds in results[:SHOWN]]
        show(f"The slowest of {title}", ("text", "characters", "seconds"), rows)
        assert results[0].seconds <= MOST_SECONDS, results[0]
