"""Secrets as people and programs write them: the part in ⟦brackets⟧ goes, and all else stays."""

import re

import pytest

from waystation.plugins.redaction.detections import Detection, resolve_overlaps
from waystation.plugins.redaction.secrets import SecretRecognizer, find_whole_text_matches

RECOGNISER = SecretRecognizer()
BY_A_WORD = r"""
DB_PASS=⟦hunter2⟧
pwd=⟦letmein⟧
PWD: ⟦hunter2⟧
export SECRET=⟦swordfish⟧
set DB_PASSWORD=⟦hunter2⟧
jdbc.password=⟦p@ss,w0rd;x⟧
password = ⟦swordfish⟧
  password: ⟦swordfish⟧
password: ⟦p@ss&w0rd99⟧
a password=⟦tr0ub4dor&3x!Q⟧
PASSWORD=⟦gehe1m99⟧ && make deploy
/login?password=⟦abc123⟧&user=kim, password=⟦hunter22⟧&amp;user=kim
"DB_PASSWORD": "⟦swordfish⟧"
"password": "⟦it's me⟧"
"pass": "⟦hunter2⟧"
:password => '⟦hunter22⟧'
let dbPass = "⟦hunter2⟧"
psk="⟦correct horse⟧"
"api_key": "⟦abc123⟧"
api_key: ⟦12345678⟧
api key ⟦0123456789abcdef0123456789abcdef⟧
"client_secret": "⟦abc12345⟧"
The password is ⟦hunter2⟧.
password is set to ⟦hunter2⟧
my password was: ⟦swordfish⟧
password for staging: ⟦hunter2⟧
the wifi password for the lobby is ⟦blue42⟧
**Password:** ⟦hunter2⟧
- Password: **⟦hunter2⟧**
User: bob, password: ⟦swordfish⟧
user=bob&password=⟦letmein⟧&x=1
host=db user=bob password=⟦swordfish⟧ dbname=x
Server=db;Uid=sa;Pwd=⟦letmein⟧;
Endpoint=sb://x.example.net/;SharedAccessKeyName=root;SharedAccessKey=⟦Zm9vYmFyMTIzNDU2Nzg5MA==⟧
CREATE USER bob IDENTIFIED BY '⟦swordfish⟧';
contraseña: ⟦Secreto123⟧
La contraseña es ⟦Secreto123⟧.
mot de passe : ⟦Soleil⟧
Das Passwort lautet ⟦Geheim123⟧.
Kennwort: ⟦Geheim⟧
A senha é ⟦segredo99⟧
Het wachtwoord is ⟦Geheim123⟧
La password è ⟦Segreto12⟧
пароль: ⟦hunter2⟧
密码是⟦hunter2abc⟧。
パスワードは⟦hunter2abc⟧です
비밀번호: ⟦hunter2abc⟧
api key: ⟦qvxhmtpwlzkrbn⟧
"apikey":"⟦qvxhmtpwlzkrbn⟧"
client_secret: ⟦qvxhmtpwlz⟧
export SECRET_KEY_BASE="⟦qvxhmtpwlzkrbnwt⟧"
clave=⟦luna⟧
aws configure set aws_secret_access_key ⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY⟧
FERNET_KEY=⟦cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4=⟧
TELEGRAM=⟦123456789:AAFk3jDs8Qwk3jDs8Qwk3jDs8Qwk3jDs8Qw⟧
config.set("password","⟦Zebra77crossing⟧")
password: ⟦two words here⟧
12| Passphrase: ⟦correct horse battery staple⟧
"""
IN_HEADERS_AND_ADDRESSES = r"""
Cookie: session=⟦9f8e7d6c5b4a39281706f5e4d3c2b1a0⟧
Cookie: theme=dark; JSESSIONID=⟦A1B2C3D4E5F6⟧; lang=en
Set-Cookie: sid=⟦abc123def456⟧; Path=/; HttpOnly; SameSite=Lax
"Cookie": "sessionid=⟦38afes7a8⟧; other=1"
GET /x;jsessionid=⟦0AAB6C8DE415E2E5F307CF334BFCA0C1⟧?a=1
Authorization: Basic ⟦dXNlcjpwYXNz⟧
Authorization: ApiKey ⟦abc123def456⟧
Authorization: ⟦abc123def456⟧
Authorization: Digest username="bob", response="⟦6629fae49393a05397450978507c4ef1⟧"
Proxy-Authorization: Basic ⟦QWxhZGRpbjpvcGVuc2VzYW1l⟧
{"Authorization": "Bearer ⟦abc123def456ghi⟧"}
curl -H "X-Api-Key: ⟦swordfish⟧" https://x
curl -u "⟦hJ7dK2mPq9xW4v⟧:" https://localhost
curl -u ":⟦hJ7dK2mPq9xW4v⟧" https://localhost
curl -X POST --user  'johns:⟦h0pk1ns~21s⟧' $URL
curl --user kevin:'⟦pRf7vG2h1L8nQkW9⟧' -iX PATCH "https://x/a?b=1&c=2"
curl "https://x/a?b=1&c=2" --user kevin:⟦pRf7vG2h1L8nQkW9⟧
curl -u <user:password> https://x.example
curl -u $USER:$PASS https://x.example
X-Vault-Token: ⟦s.abcdef1234567890⟧
?api_key=⟦12345678⟧&x=1
https://x.example/y?access_token=⟦abcdef⟧&x=1
mongodb+srv://bob:⟦s3cret⟧@cluster0.example.net/x
redis://:⟦s3cret⟧@cache:6379/0
jdbc:oracle:thin:scott/⟦tiger⟧@db:1521/x
ssh://user:⟦pa@ss:w0rd⟧@host
SENTRY_DSN=https://⟦0123456789abcdef0123456789abcdef⟧@o1.ingest.example.net/1
https://api.telegram.org/bot⟦123456789:AAFk3jDs8Qwk3jDs8Qwk3jDs8Qwk3jDs8Qw⟧/sendMessage
WIFI:T:WPA;S:home;P:⟦geheim123⟧;;
WIFI:P:⟦geheim\;123⟧;S:home;;
"""
ON_COMMAND_LINES = r"""
mysql -u root -p⟦MyS3cret⟧
mysqldump --password=⟦hushhush⟧ db
sshpass -p '⟦pa55word⟧' ssh bob@host
docker login -u bob -p ⟦hunter2⟧ registry
redis-cli -h x -a ⟦hunter2⟧ ping
tool --db-password ⟦hushhush⟧ --x
openssl rsa -passin pass:⟦hunter2⟧ -in k
smbclient -U bob%⟦hunter2⟧ //h/s
htpasswd -b .htpasswd bob ⟦hunter2⟧
machine example.com login bob password ⟦hunter2⟧
db.internal:5432:shop:bob:⟦hunter2⟧
bob:⟦$apr1$abcdefgh$abcdefghijklmnopqrstuv⟧
"""
OF_SETTINGS = r"""
InstrumentationKey=⟦1d3c4b5a-6f7e-4a21-9c0d-2b4e6f8a1c3d⟧;IngestionEndpoint=https://eu.in.example.com/
{"instrumentationKey": "⟦1d3c4b5a-6f7e-4a21-9c0d-2b4e6f8a1c3d⟧"}
APPINSIGHTS_INSTRUMENTATIONKEY: ⟦1d3c4b5a-6f7e-4a21-9c0d-2b4e6f8a1c3d⟧
os.getenv("DB_PASSWORD", "⟦tr0ub4dor⟧")
password = os.getenv("DB_PASSWORD", "⟦postgres⟧")
os.environ.get('SECRET_KEY', default='⟦insecure-k3y-99⟧')
os.environ.get("DB_PASSWORD") or "⟦hunter2⟧"
const p = process.env.DB_PASSWORD ?? '⟦hunter2⟧'
process.env.API_TOKEN || `⟦f3c1a9d27be84105⟧`
ENV.fetch("DB_PASSWORD", "⟦swordfish⟧")
ENV["DB_PASSWORD"] || "⟦swordfish⟧"
'password' => env('DB_PASSWORD', '⟦swordfish⟧'),
config("API_KEY", default="⟦ab12cd34ef56⟧")
System.getenv().getOrDefault("DB_PASS", "⟦swordfish⟧")
GetEnvOrDefault("api_token", "⟦0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45⟧")
image: postgres:${DB_PASSWORD:-⟦swordfish⟧}
spring: ${db.password:⟦Sommer2024⟧}
const HEROKU_KEY = "⟦0B7D4A1E-93C2-4F5A-8E61-2D9C7F30AB45⟧"
let hubspotKey = '⟦0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45⟧'
KEY=⟦0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45⟧
api_key: ⟦0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45⟧
facebook ⟦1480035917264083|tQ7_bXn2vLk9wRzYc4MdHs8JpFa⟧
BUNDLE_GEMS__CONTRIBSYS__COM: "⟦0badf00d:c0ffee11⟧"
export BUNDLE_PACKAGES__EXAMPLE__ORG=⟦kim:geheim99⟧
sonar.login=⟦4f0c3a9d1b7e8265f0c3a9d1b7e82654f0c3a9d1⟧
SONAR_TOKEN := "⟦squ_4f0c3a9d1b7e8265f0c3a9d1b7e82654f0c3a9d1⟧"
"""
CODES = """
PIN: ⟦4821⟧
Your PIN is ⟦4821⟧.
CVV ⟦123⟧
cvc: ⟦123⟧, exp 12/27
OTP: ⟦482193⟧
verification code is ⟦482 193⟧
"""
ACROSS_LINES = (
    "<password>⟦hunter2⟧</password>",
    '<ns:Password attr="1">⟦letmein⟧</ns:Password>',
    '<property name="password" value="⟦hunter2⟧"/>',
    "- name: DB_PASSWORD\n  value: ⟦hunter2⟧",
    "machine example.com\n  login bob\n  password ⟦swordfish⟧",
    "| user | password |\n|---|---|\n| bob | ⟦hunter2⟧ |\n| eve | ⟦letmein⟧ |\n\n| a | b |\n|---|---|\n| c | d |",
    "user,password\nbob,⟦hunter2⟧\neve,⟦swordfish⟧\n",
    "name;Passwort;x\nbob;⟦hunter2⟧;1",
    "name,api key\nbob,⟦qvxhmtpwlzkrbn⟧\n",
    "name;pass word;dept\nbob;⟦Zebra77crossing⟧;it",
    "login | password | note\nbob | ⟦luna⟧ | x",
    "passwords:\n  - ⟦Zebra77crossing⟧\n  - '⟦luna⟧'\nother:\n  - x",
    "passwords: [⟦Zebra77crossing⟧, '⟦luna⟧']",
    '{"passwords": [\n  "⟦Zebra77crossing⟧",\n  "⟦luna⟧"], "a": ["b"]}',
    "INSERT INTO users (name, password) VALUES ('bob','⟦Zebra77crossing⟧'),\n (lower('E'), '⟦it''s luna⟧');",
    "| id | pin | cvv |\n|--|--|--|\n| 1 | ⟦4821⟧ | ⟦123⟧ |",
    "kind: Secret\nmetadata:\n  name: x\ndata:\n  user: ⟦Ym9i⟧\nstringData:\n  a: ⟦swordfish⟧\n---\ndata:\n  a: bcdef",
    "apiVersion: v1\ndata:\n  pw: ⟦aHVudGVyMg==⟧\nkind: Secret\n",
)
NO_SECRET = r"""
os.getenv("DB_PASSWORD")
os.getenv("DB_PASSWORD", "")
os.getenv("DB_PASSWORD", "changeme")
os.getenv("TOKEN_URL", "https://example.org/token1")
os.getenv("DB_PASSWORD_FILE", "/run/secrets/x1")
os.getenv("TOKEN_TYPE", "bearer1234")
process.env.TOKEN_ISSUER || "https://example.org/1"
i18n.get("password", "Passwort")
getString("password", "Enter your password")
t("token", "Token number 1")
${TOKEN:0:8} ${TOKEN:-} ${TOKEN:=$OTHER1}
PRIMARY_KEY=0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45
const cacheKey = "0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45"
  key: 0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45
sonar.login=admin
BUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/: http://mirror.example.org
| 1480035917264083|a line of a table and its end |
password = os.environ["X"]
def password(self) -> str:
token = tokenizer(text)
token = tokenizer.encode(text)
token: str = "x"
password: SecretStr
password: string;
key=value docs, name=value
PIN 13, pin 13 of the GPIO header, pins 4-8, pin: 13
PWD=/srv/x/project2
"OLDPWD": "/srv/x/project",
connect(user=user, password=entered)
    password=entered,
const password = await read('Password: ');
password=settings.db_password,
secret_key = hashlib.sha256(x)
The password is required. The password is wrong
Password was changed yesterday
Password: must be at least 8 characters
password: {{ db_password }}
password: "********"
api_key="YOUR_API_KEY"
GIT_ASKPASS: 'echo',
SECRET_KEY=os.environ["SECRET_KEY2"]
GOOGLE_APPLICATION_CREDENTIALS=/etc/key2.json
headers = {"Authorization": f"Bearer {token}"}
Authorization: required; basic authentication is used
Set-Cookie: theme=dark; Path=/; Max-Age=3600
max_tokens=4096, max_token: 128000
secret: my-app-tls
PASS: test_login2
bypass: true, compass: north
<label>Password</label><password/>
docker run -p 8080:80 nginx
mysql -u root -p shop
ssh -p 2222 host
--password PASSWORD, --token=<token>, tool --token-limit 4096
security code review 2024, CVC 4.0
If the user or password part of your credentials
identified by `diagnostics.previous_message_id`.
token task-0123456789abcdef/research-1
api_key: authentication, "secret_key": "someHttpRequest"
client_secret: straightforward
clave=valor, pass=first
password: must be 12 characters
Password: reset by mail
password: fix crash in validator
Passwords: common mistakes
# Password: horse battery staple
login | password | note
see postgres://db:5432/x,bob@example.com
form.get("password", "Zebra77crossing"), set("password", "password")
SELECT name, password FROM users WHERE name IN ('bob','Zebra77crossing')
INSERT INTO users (name, password) VALUES (?, ?), ('bob', :password)
https://first.last1990-of-somewhere@example.com
"""
NO_SECRET_ACROSS_LINES = (
    "| name | type |\n|---|---|\n| password | string |\n| user | text1 |\n| token | abc12345 |",
    "from x import user,password\nfrom y import a,bc12",
    "Enter password, then\nwait, and so1 on",
    "| model | token | price |\n|--|--|--|\n| gpt4o | 4096 | 12 |\n| the | word | x |",
    "kind: Secret\ndata:\n  x: <SECRET_0123456789ab>\n",
    "| password |\n|---|\n| <SECRET_0123456789ab> |",
    "Passwords:\n- must be long\n- kept: never\n",
    "Enter pass word, then\nwait, and so1 on",
)


def split_cases(*blocks: str) -> list[str]:
    return [line for block in blocks for line in block.splitlines() if line]


def strip_marks(text: str) -> str:
    return re.sub("[⟦⟧]", "", text)


def mark_secrets(text: str) -> str:
    finds = [Detection(*hit) for hit in (*RECOGNISER.find_matches(text), *find_whole_text_matches(text))]
    for find in reversed(resolve_overlaps(text, finds)):
        text = f"{text[: find.start]}⟦{text[find.start : find.end]}⟧{text[find.end :]}"
    return text


def test_of_what_holds_a_secret_the_secret_is_found() -> None:
    texts = [*split_cases(BY_A_WORD, IN_HEADERS_AND_ADDRESSES, ON_COMMAND_LINES, OF_SETTINGS, CODES), *ACROSS_LINES]
    assert {text: mark_secrets(strip_marks(text)) for text in texts} == {text: text for text in texts}


@pytest.mark.parametrize("characters", [399, 400, 401, 1_600])
def test_of_a_long_secret_nothing_is_left(characters: int) -> None:
    secret = "a1b2c3d4" * (characters // 8) + "e5f6g7h8"[: characters % 8]
    for text in (f"api_key={secret} end", f"the pwd is {secret}\n"):
        assert mark_secrets(text) == text.replace(secret, f"⟦{secret}⟧")


def test_code_manuals_and_figures_hold_no_secret() -> None:
    texts = [*split_cases(NO_SECRET), *NO_SECRET_ACROSS_LINES]
    assert {text: mark_secrets(text) for text in texts} == {text: text for text in texts}


def test_a_table_longer_than_a_chunk_keeps_its_heading() -> None:
    table = "| user | password |\n|---|---|\n" + "".join(f"| user{n} | letmein |\n" for n in range(400))
    assert mark_secrets(table).count("⟦letmein⟧") == 400
