"""Secrets in the forms in which programs and people write them: the part in ⟦brackets⟧ goes, and all else stays."""

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination

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
NAMED = r"""
AZURE_OPENAI_KEY=⟦57d2de35873840b5ad59d742e90e974e⟧
sendgrid_key: ⟦57d2de35873840b5ad59d742e90e974e⟧
const stripeKey = '⟦vN8rTq3LxZ0pKw5bQm7Y⟧';
{"mapsKey": "⟦57d2de35873840b5ad59d742e90e974e⟧"}
const fastlyKey string = "⟦TVAWji0p7uDI6OP9DyWvmV-vgoUoXIuf⟧"
Your weather key is ⟦57d2de35873840b5ad59d742e90e974e⟧, keep it safe.
token = '⟦SSVmFDNCFfOHKXQAEckx⟧'
client_secret: ⟦wjXKCFzOWEPRqhTmmbWtVQ⟧
define( 'NONCE_SALT', '⟦put-vN8rTq3LxZ0pKw5bQm7Y!)(x⟧' );
<input name="p" type="password" value="⟦tr4nqu1l-Otter-88x⟧">
<String><Key>Password</Key><Value ProtectInMemory="True">⟦tr4nqu1l-Otter-88x⟧</Value></String>
https://example.org/reset/⟦vN8rTq3LxZ0pKw5bQm7YvN8rTq3L⟧
https://example.org/cb?code=⟦vN8rTq3LxZ0pKw5bQm7YvN8rTq3L⟧&state=1
https://example.org/weather?appid=⟦57d2de35873840b5ad59d742e90e974e⟧
an app password ⟦ATBBzyxwvUT987srqPON654mlkJIH⟧ of mine
it began with ⟦sdk-5a3ba1b2-aaaa-41ac-b6c1-17ad53fdbcbe⟧ there
refresh: ⟦1000.1fa6966eafbb115624baa4103269e50e.e57d155232227b4e41fa7dd2b88dd4d4⟧
"""
SAID = r"""
password: ⟦@dm1n2024!⟧
password: ⟦$ecur3P@ss⟧
pw ⟦tr4nqu1l-Otter-88x⟧
log in with ana and password ⟦tr4nqu1l-Otter-88x⟧
pass is ⟦tr4nqu1l-Otter-88x⟧
Das Passwort vom Server lautet: ⟦tr4nqu1l-Otter-88x⟧
contraseña del wifi: ⟦tr4nqu1l-Otter-88x⟧
le mot de passe c'est ⟦tr4nqu1l-Otter-88x⟧
wifi: GuestNet / ⟦tr4nqu1l-Otter-88x⟧
the credentials are ana and ⟦tr4nqu1l-Otter-88x⟧
backup codes: ⟦1234-5678, 8765-4321⟧
recovery codes ⟦a1b2c-3d4e5 f6a7b-8c9d0⟧
Recovery key: ⟦3F2A-9KQ7-XX2P-77ZM⟧
it asks for ⟦123456-234567-345678-456789-567890-678901-789012-890123⟧ now
seed phrase: ⟦legal winner thank year wave sausage worth useful legal winner thank yellow⟧
the front door code is ⟦4471⟧.
safe combination ⟦12-34-56⟧
"""
TYPED = r"""
net use z: \\srv\share ⟦tr4nqu1l-Otter-88x⟧ /user:ana
requirepass ⟦tr4nqu1l-Otter-88x⟧
bindpw ⟦tr4nqu1l-Otter-88x⟧
olcRootPW: ⟦tr4nqu1l-Otter-88x⟧
echo "⟦ana:tr4nqu1l-Otter-88x⟧" | chpasswd
echo ⟦tr4nqu1l-Otter-88x⟧ | docker login -u ana --password-stdin
echo '⟦tr4nqu1l-Otter-88x⟧' | sudo -S apt update
useradd -m -p ⟦tr4nqu1l-Otter-88x⟧ ana
http --auth ana:⟦tr4nqu1l-Otter-88x⟧ api.example.com
new PDO("mysql:host=db", "ana", "⟦tr4nqu1l-Otter-88x⟧")
"""
LONG = "".join(f"{number:03}vN8rTq3LxZ" for number in range(300))
LONG_TOKENS = (
    f'{{"refresh_token": "⟦0.A{LONG}.x⟧", "expires_in": 3600}}',
    f"token: ⟦{LONG}⟧\nnext: line",
    f"session_key=⟦{LONG}==⟧ end",
)
OVER_LINES = (
    'variable "db_password" {\n  default = "⟦tr4nqu1l-Otter-88x⟧"\n}',
    "password = <<EOT\n⟦tr4nqu1l-Otter-88x⟧\nEOT",
    "> password:\n> ⟦tr4nqu1l-Otter-88x⟧\n",
    "+password:\n+  ⟦tr4nqu1l-Otter-88x⟧\n",
    "12: password:\n13:   ⟦tr4nqu1l-Otter-88x⟧\n",
    "Password\n--------\n⟦tr4nqu1l-Otter-88x⟧\n",
    "* password\n  * ⟦tr4nqu1l-Otter-88x⟧\n",
    "username: ana\npass: ⟦tr4nqu1l-Otter-88x⟧\n",
    "backup codes:\n⟦1234 5678\n8765 4321⟧\nkeep them\n",
    "DB_PASSWORD=⟦tr4nqu1l-Otter-88x⟧\nlater: it failed with '⟦tr4nqu1l-Otter-88x⟧', url=x?p=⟦tr4nqu1l-Otter-88x⟧.\n",
    "user      password\nana       ⟦tr4nqu1l-Otter-88x⟧\nben       ⟦Wd9kQz7LmP2v⟧\n",
    "======  ==================\nuser    password\n======  ==================\nana     ⟦tr4nqu1l-Otter-88x⟧\n",
    "│ user │ secret password │\n├──────┼──────────┤\n│ ana  │ ⟦tr4nqu1l-Otter-88x⟧ │\n",
)
FORMS = (SPELLED_OUT, IN_CODE, IN_FILES, NAMED, SAID, TYPED)
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
    'cache_key = "57d2de35873840b5ad59d742e90e974e"',
    'const publicKey = "9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit"',
    "the primary key is 57d2de35873840b5ad59d742e90e974e here",
    "row_key: 76a836c8-469d-4426-8a3b-194ca930b7a1",
    'i18nKey: "settings.account.two_factor_title"',
    "mainKey = loadKeyFromFile2021_01_02_backup",
    "password: $DB_PASSWORD1",
    'password = "${env:DB_PASSWORD_1}"',
    "password: @Value1",
    "the password PBKDF2-HMAC-Sha256 and password Argon2id-v1x",
    "passwords of 12 to 64 characters; the password field2Name is a String",
    'token = "HTTPSConnectionURLParserAPIKey"',
    "the error code is 4471, exit code 1234, the door code lock is new",
    "recovery codes are made once; backup codes come in tens",
    "seed phrase: twelve words in their order that a wallet makes when it is set up",
    "echo $PASSWORD | sudo -S true",
    "https://example.org/reset/your-password-please-now",
    "https://example.org/?code=utf8&appid=org.example.app",
    "the path is %2Fusr%2Fbin and &quot;quoted&quot; words",
)


@pytest.fixture(scope="module")
def redactor() -> Iterator[PresidioRedactor]:
    with closing(PresidioRedactor(b"k" * 32)) as redactor:
        yield redactor


async def marked(redactor: PresidioRedactor, texts: list[str]) -> list[str]:
    """Without what tells one placeholder from another, as the brackets do."""
    results = await redactor.redact(texts, TextDestination.TOOL_RESULT, "t")
    return [re.sub(r"<SECRET_[0-9a-f]{12}>", "⟦⟧", one.text) for one in results]


def cases(table: str) -> list[str]:
    return table.strip().splitlines()


@pytest.mark.parametrize("forms", [*map(cases, FORMS), [*OVER_LINES], [*LONG_TOKENS]])
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
