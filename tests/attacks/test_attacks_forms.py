"""Secrets in the forms in which programs and people write them: the part in ⟦brackets⟧ goes, and all else stays."""

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from waystation.adapters.presidio.redactor import PresidioRedactor
from waystation.domain.privacy import Place

SPELLED_OUT = r"""
body=%7B%22password%22%3A%22⟦tr4nqu1l-Otter-88x⟧%22%7D
next=%2Flogin%3Fpassword%3D⟦tr4nqu1l-Otter-88x⟧%26user%3Dkim
<div data-x="{&quot;password&quot;:&quot;⟦tr4nqu1l-Otter-88x⟧&quot;}">
{"a": "{\"body\": \"{\\\"password\\\": \\\"⟦tr4nqu1l-Otter-88x⟧\\\"}\"}"}
{"pass\u0077ord":"⟦tr4nqu1l-Otter-88x⟧"}
"""
IN_CODE = r"""
ds.setPassword("⟦tr4nqu1l-Otter-88x⟧");
define('DB_PASSWORD', '⟦tr4nqu1l-Otter-88x⟧');
let password: String = "⟦tr4nqu1l-Otter-88x⟧"
string password = @"⟦tr4nqu1l-Otter-88x⟧";
let password = r#"⟦tr4nqu1l-Otter-88x⟧"#;
ENV DB_PASSWORD ⟦tr4nqu1l-Otter-88x⟧
setenv DB_PASSWORD ⟦tr4nqu1l-Otter-88x⟧
set -x DB_PASSWORD ⟦tr4nqu1l-Otter-88x⟧
DRIVER={x};UID=ana;PWD={⟦tr4nqu1l-Otter-88x⟧}
"""
IN_FILES = r"""
username ana password 7 ⟦0822455D0A16⟧
snmp-server community ⟦tr4nqu1l-Otter-88x⟧ RO
cn=x,ou=y userPassword={SSHA}⟦W6ph5Mm5Pz8GgiULbPgzG37mj9g=⟧
userPassword:: ⟦e1NTSEF9VzZwaDVNbTVQejhHZ2lVTGJQZ3pHMzdtajlnPQ==⟧
{"auths":{"https://index.example/v1/":{"auth":"⟦YW5hOnRyNG5xdTFsLU90dGVyLTg4eA==⟧"}}}
_auth=⟦YW5hOnRyNG5xdTFsLU90dGVyLTg4eA==⟧
{"kty":"oct","k":"⟦FdFYFzERwC2uCBB46pZQi4GG85LujR8obt-KWRBICVQ⟧"}
{"value":"⟦tr4nqu1l-Otter-88x⟧","name":"password"}
<add value="⟦tr4nqu1l-Otter-88x⟧" key="DbPassword"/>
<member><name>password</name><value><string>⟦tr4nqu1l-Otter-88x⟧</string></value></member>
<dl><dt>Password</dt><dd>⟦tr4nqu1l-Otter-88x⟧</dd></dl>
"""
OVER_LINES = (
    'variable "db_password" {\n  default = "⟦tr4nqu1l-Otter-88x⟧"\n}',
    "password = <<EOT\n⟦tr4nqu1l-Otter-88x⟧\nEOT",
    "> password:\n> ⟦tr4nqu1l-Otter-88x⟧\n",
    "+password:\n+  ⟦tr4nqu1l-Otter-88x⟧\n",
    "12: password:\n13:   ⟦tr4nqu1l-Otter-88x⟧\n",
    "Password\n--------\n⟦tr4nqu1l-Otter-88x⟧\n",
    "* password\n  * ⟦tr4nqu1l-Otter-88x⟧\n",
    "username: ana\npass: ⟦tr4nqu1l-Otter-88x⟧\n",
    "user      password\nana       ⟦tr4nqu1l-Otter-88x⟧\nben       ⟦Wd9kQz7LmP2v⟧\n",
    "======  ==================\nuser    password\n======  ==================\nana     ⟦tr4nqu1l-Otter-88x⟧\n",
    "│ user │ secret password │\n├──────┼──────────┤\n│ ana  │ ⟦tr4nqu1l-Otter-88x⟧ │\n",
)
STAYS = (
    "--- PASS: test-case-12 (0.00s)",
    'f"UID={user};PWD={password}"',
    "setPassword('newPassword');",
    'SUBJECT_TOKEN_TYPE = "urn:ietf:params:aws:token-type:aws4_request"',
    "  login     password\n  enter     your name\n",
    "Key  Value\ncolour  red\n",
    "<p>Password</p> <p>required</p>",
    "ENV PATH /usr/bin:/bin",
    "## Password\n\nIt has 12 characters or more.\n",
    "the path is %2Fusr%2Fbin and &quot;quoted&quot; words",
)


@pytest.fixture(scope="module")
def redactor() -> Iterator[PresidioRedactor]:
    with closing(PresidioRedactor(b"k" * 32)) as redactor:
        yield redactor


async def marked(redactor: PresidioRedactor, texts: list[str]) -> list[str]:
    """Without what tells one placeholder from another, as the brackets do."""
    results = await redactor.redact(texts, Place.TOOL_RESULT, "t")
    return [re.sub(r"<SECRET_[0-9a-f]{12}>", "⟦⟧", one.text) for one in results]


def cases(table: str) -> list[str]:
    return table.strip().splitlines()


@pytest.mark.parametrize("forms", [cases(SPELLED_OUT), cases(IN_CODE), cases(IN_FILES), [*OVER_LINES]])
async def test_of_each_form_the_secret_goes_and_all_else_stays(redactor: PresidioRedactor, forms: list[str]) -> None:
    given = [re.sub("[⟦⟧]", "", one) for one in forms]
    assert await marked(redactor, given) == [re.sub("⟦[^⟧]*⟧", "⟦⟧", one) for one in forms]


async def test_a_token_that_markdown_escapes_is_one(redactor: PresidioRedactor) -> None:
    assert await marked(redactor, ["It is sk\\_live\\_4eC39HqLyjWDarjtT1zdp7dc."]) == ["It is ⟦⟧."]


async def test_addresses_and_passwords_that_somebody_collected(redactor: PresidioRedactor) -> None:
    (shown,) = await marked(redactor, ["ana@example.org:tr4nqu1l-Otter-88x\nben@example.org;Wd9kQz7LmP2v\n"])
    assert re.sub(r"<EMAIL_[0-9a-f]{12}>", "@", shown) == "@:⟦⟧\n@;⟦⟧\n"


async def test_what_only_looks_like_a_form_stays(redactor: PresidioRedactor) -> None:
    assert await marked(redactor, [*STAYS]) == [*STAYS]
