"""Secrets under the key of a map, list, section or element: all of them go, and what only stands there stays."""

from itertools import product

import pytest

from waystation.plugins.redaction.detections import Detection, resolve_overlaps
from waystation.plugins.redaction.headings import find_secrets_under_headings

FIRST, SECOND = "Tr0ub4dorjeKkOG", "Zk3mVq9LxT2w"
HEADINGS = (
    "passwords",
    "secrets",
    "credentials",
    "api_keys",
    "apiKeys",
    "tokens",
    "creds",
    "user_passwords",
    "Passwörter",
    "secretsByUser",
    "passwords_by_user",
    "API keys",
)
FORMS = (
    "{heading}: {{bob: {first}}}",
    "{heading}:\n  bob: {first}\n  eve: {second} # hers\nother: x",
    "{heading}:\r\n  bob: {first}\r\n",
    "{heading}:\n- {first}\n- {second}\n",
    "{heading}:\n  - bob: {first}\n  - name: eve\n    value: {second}\n",
    "{heading}:\n  prod:\n    db:\n      bob: {first}\n",
    "{heading}:\n  bob:\n    {first}\n",
    "{heading}:\n  bob: >-\n    {first}\n",
    "{heading}:\n  bob: !!str {first}\n  eve: &hers {second}\n",
    "{heading}:\n  bob: {{pw: {first}}}\n  eve: {second}\n",
    "{heading}:\n  - bob / {first}\n",
    "x:\n  - {heading}:\n      bob: {first}\n    y: 1",
    "{heading}: {{a: {{b: [{{c: {first}}}]}}}}",
    "{heading}: [[bob, {first}], [eve, {second}]]",
    "{heading}: {{bob: {first}",
    '{{"{heading}": {{"bob": "{first}", "eve":"{second}"}}}}',
    '{{"{heading}": {{"bob":\n "{first}"}}}}',
    '{{\n "{heading}": [\n  "{first}",\n  "{second}"\n ]\n}}',
    '[{heading}]\nbob = "{first}"\n\n[x]\na=b',
    '[app.{heading}.prod]\nbob = "{first}"',
    "[{heading}]\nbob={first}\n; eve={second}\n",
    "[{heading}]\nbob: {first}\n",
    '{heading} = {{\n  bob = "{first}"\n  eve = "{second}"\n}}',
    '{heading} = ["{first}", "{second}"]',
    "'{heading}' => ['bob' => '{first}']",
    "const {heading}: Record<string, string> = {{ bob: '{first}' }};",
    'var {heading} = map[string]string{{"bob": "{first}"}}',
    '{heading} = dict(bob="{first}")',
    "# {heading}\n\n- bob: {first}\n- eve: `{second}`\n",
    "{heading}.bob={first}",
    "{heading}[bob]={first}",
    '"{heading}:Bob": "{first}"',
    "<key>{heading}</key><dict><key>bob</key><string>{first}</string></dict>",
    '<section name="{heading}"><entry key="bob">{first}</entry></section>',
)
ELEMENTS = (
    '<{heading}><user name="bob">{first}</user></{heading}>',
    '<{heading}>\n <add key="bob" value="{first}"/>\n</{heading}>',
    "<config><{heading}><bob>{first}</bob><eve><![CDATA[{second}]]></eve></{heading}></config>",
)
BY_THE_HEADING = r"""
passwords: {bob: ⟦hunter2⟧, eve: "⟦somm&er⟧", kim: "⟦48291733⟧", url: ⟦Tr0ub4dorjeKkOG⟧}
"password": ["⟦hunter22⟧", "⟦s3cret-x⟧"]
api_keys: {weather: ⟦abc12345⟧, maps: ⟦qvxhmtpwlzkrbn⟧}
secrets: {db: "⟦hunter2!x⟧", api: ⟦9f8e7d6c5b4a39281706f5e4d3c2b1a0⟧}
tokens: {bob: ⟦0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45⟧, eve: ⟦abc123def456⟧}
credentials: {aws: wJalr, key: ⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ8nTvLk2M⟧}
keys: {prod: ⟦Zk3mVq9LxT2wHh7Bp4⟧, kid: aB3dE5fG7hI9jK1lM3}
PASSWORDS_BOB=⟦Tr0ub4dorjeKkOG⟧
"""
NO_SECRETS = r"""
services:
  db:
    image: postgres:16.2
    secrets:
      - db_password
      - source: tls_cert_v2
        target: server.cert
        mode: 0440
secrets:
  db_password:
    file: ./db_password2.txt
  db_root_password_2024:
    external: true
    name: prod_db_root_v2
    environment: DB_ROOT_PASSWORD2
###
on:
  workflow_call:
    secrets:
      token:
        description: 'A token passed from the caller workflow v2'
        required: true
      NPM_TOKEN2:
        required: false
jobs:
  a:
    uses: org/repo/.github/workflows/x.yml@v2
    secrets:
      token: ${{ secrets.GITHUB_TOKEN }}
      other: ${{ secrets.OTHER2 }}
    with: {node-version: 20.x}
###
components:
  securitySchemes:
    bearerAuth: {type: http, scheme: bearer, bearerFormat: JWT}
  schemas:
    Login:
      properties:
        password:
          type: string
          format: password
          minLength: 12
          maxLength: 128
          pattern: '^(?=.*[A-Z])(?=.*\d)[A-Za-z\d@$!%*?&]{8,}$'
          description: At least 12 characters, one digit (0-9).
        token:
          $ref: '#/components/schemas/TokenV2'
###
{"tokens": {"colour": "#ff00aa", "blue-500": "#1e90ff", "space": {"sm4": "4px", "md8": "0.5rem"},
 "ref": "{color.blue.500}", "font": "Inter-Bold-24", "shadow": "0 1px 2px rgba(0,0,0,.2)", "dur": "150ms",
 "ease": "cubic-bezier(0.4, 0, 0.2, 1)", "alias": "var(--blue-500)", "text2xl": "heading2xl",
 "h1": {"value": "32px", "type": "dimension2"}}}
###
{"usage": {"tokens": {"input": 1200, "output": 77, "model": "gpt-4o-2024-08-06", "cached": 0,
 "at": "2024-05-01T10:00:00Z", "model2": "claude-3-5-sonnet-20241022"}}}
###
{"password": "Passwort", "passwords": {"title": "Kennwort ändern", "reset": "Zurückgesetzt!",
 "sent": "Gesendet.", "token": "Ungültig", "user": "Benutzer", "min": "Mindestens 8 Zeichen",
 "step1": "Schritt 1 von 3"}}
###
'passwords' => [
    'users' => [
        'provider' => 'users',
        'table' => 'password_reset_tokens',
        'expire' => 60,
        'throttle' => 60,
    ],
],
'password' => ['required', 'string', 'min:8', 'max:255', 'confirmed', 'regex:/[a-z]/', Password::min(8)],
###
kind: Deployment
spec:
  template:
    spec:
      imagePullSecrets:
        - name: regcred-2024
        - name: ghcr-io-v2
      containers:
        - env:
            - name: DB_PASSWORD
              valueFrom:
                secretKeyRef:
                  name: db-credentials-v2
                  key: password
          envFrom:
            - secretRef: {name: app-secrets-2}
      volumes:
        - name: creds
          secret:
            secretName: db-creds-v3
            defaultMode: 0400
            items: [{key: tls.crt, path: tls2.crt}]
serviceAccount:
  secrets:
  - name: build-robot-secret-2
###
passwords:
  min_length: 12
  max_age: 90d
  history: 24
  enabled: true
  hash: argon2id
  algorithm: pbkdf2-sha256
  ttl: 3600
  expires: 2025-01-01T00:00:00Z
  rotation: 30 days
  file: /run/secrets/x1
  vault: !vault |
  ref: ${BOB_PW1}
  ref2: $BOB_PW2
  from: vault:secret/data/bob#pw1
  url: https://vault.example.com/v1/secret2
  anchor: *bob1
  none: null
  tilde: ~
  description: see the wiki page 12 for rules
  policy: strong
  encoding: utf8mb4
###
secrets:
  - k8sclustersecret
  - aws_rds_master_v2
  - e2e-tests-token-2024
  - oauth2-proxy-cookie
  - S3_BUCKET_KEY2
tokens:
  access: {ttl: 15m, alg: HS256, issuer: auth-v2.example.com}
  refresh: {ttl: 30d, alg: RS256}
  store: redis6
keys:
  - primary_id
  - user2_email
  - en-US
  - 2024-05-01
###
tokens = tokenizer.encode("Hello World2")
tokens = [token1, token2, t.lower() for t in x]
passwords = [user1.password, get_password(user2)]
password = {"min_length": 8, "regex": r"^\w+$"}
def login(token: dict[str, int] = {}, password: Optional[Str1] = None): pass
if password:
    user2 = bob42
    h1 = hash2(password1)
for token in tokens:
    x1 = y2.z3
credentials = service_account.Credentials(scopes=["https://www.googleapis.com/auth/x2"])
credentials = ServicePrincipalCredentials(client_id=CLIENT_ID1, secret=config1.x)
<Input password={user1} token={state.token1} />
secrets := map[string]string{"name": os.Getenv("NAME2")}
api_keys = {"header": "X-Api-Key2", "prefix": "sk_", "in": "query"}
const tokens = { primary: theme.colors.blue500, size: spacing4 };
type Tokens = { access: string; refresh: string2 };
enum Token { Ident1, Number2, EqualEqual3 }
###
# Passwords

Use at least 12 characters. See section 4.2 and RFC8018 for hashing.

- Length: 12 to 64
- Hash: argon2id or bcrypt
- Storage: 1Password
- Rotation: every 90 days; see OPS-1234

# API keys

| name | scope |
- Scope: read2write
- Created with `make keys2`, valid 30d
###
[secrets]
backend = "vault-v2"
path = "kv/data/app2"
region = "eu-central-1"

[tokens]
max_tokens = 4096
encoding = "cl100k_base"
model = "text-embedding-3-small"

[credentials]
provider = google2
file = ~/.config/gcloud/key2.json
profile = prod-eu-1
###
"secrets": [{"name": "DB_PASSWORD",
 "valueFrom": "arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbCdEf1"}],
"authentication": {"credentials": {"type": "oauth2", "grant": "client_credentials2"}}
passwords.min_length=12
tokens.model=gpt-4o-mini-2024
token_endpoint=https://x.example/oauth2/token
password_hash_algorithm=argon2id
TOKEN_URL: https://x.example/y2
secret_name: prod-db-v2
password_reset_template: reset_v2_en
keys: [{"kty":"RSA","kid":"aB3dE5fG7hI9","n":"xGOr8H7A9bC3dE5fG7hI9jK1lM3nO5pQ7","e":"AQAB","x":"aB3dE5fG7hI9jK1l"}]
###
<tokens><token name="primary500" value="#ff00aa"/><token name="spacing4">16px</token></tokens>
<secrets><secret name="db-v2" path="/kv/app2"/></secrets>
<string name="password">Password2</string>
<resources><string-array name="passwords"><item>Enter your 1st password</item></string-array></resources>
###
The tokens: [CLS] hello world2 [SEP]. Our secrets (see [1], [2]) stay.
Passwords: {see Table 2}. The credentials: (user1, user2).
Token: a unit of text, e.g. {"a1": "b2"}.
passwords:
must be long, at least 12 characters
###
secrets:
  db: ENC[AES256_GCM,data:Zk3mVq9LxT2wAb1cD2eF3,iv:aB3dE5fG7hI9,tag:x,type:str]
  repo: git@github.com:org/app2.git
  img: ghcr.io/org/app2:v1.2.3
  cron: "0 3 * * 1"
  host: db2.internal.example:5432
  digest: sha256:9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0
  id: 0b7d4a1e-93c2-4f5a-8e61-2d9c7f30ab45
"""


def marked(text: str) -> str:
    for find in reversed(resolve_overlaps(text, [Detection(*hit) for hit in find_secrets_under_headings(text)])):
        text = f"{text[: find.start]}⟦{text[find.start : find.end]}⟧{text[find.end :]}"
    return text


def written(form: str, heading: str, *, marks: bool) -> str:
    first, second = (f"⟦{value}⟧" if marks else value for value in (FIRST, SECOND))
    return form.format(heading=heading, first=first, second=second)


def test_what_a_heading_announces_is_found_however_it_is_written() -> None:
    names = [name for name in HEADINGS if " " not in name]
    texts = [*product(FORMS, HEADINGS), *product(ELEMENTS, names)]
    found = {written(*one, marks=True): marked(written(*one, marks=False)) for one in texts}
    assert {text: one for text, one in found.items() if text != one} == {}


def test_a_heading_says_how_much_its_values_must_look_like_secrets() -> None:
    texts = [line for line in BY_THE_HEADING.splitlines() if line]
    assert {text: marked(text.replace("⟦", "").replace("⟧", "")) for text in texts} == {text: text for text in texts}


def test_settings_manifests_designs_and_code_under_such_headings_stay() -> None:
    texts = NO_SECRETS.split("###\n")
    assert len(texts) > 10
    assert {text: marked(text) for text in texts} == {text: text for text in texts}


UNITS = (
    "passwords: {",
    "passwords: [",
    "passwords:\n",
    "passwords:\n  ",
    "<passwords>",
    "[passwords]\n",
    "{",
    "'",
    '"',
    r"\"",
    "passwords.a_",
    "- ",
    "# passwords\n",
    "passwords: {a:",
    "<a>",
    "</a><passwords>",
    "tokenofa",
    "new Map(",
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("before", ["", "passwords: {", "passwords:\n ", "<passwords>"])
def test_containers_that_are_nested_or_never_close_are_read_in_one_go(before: str) -> None:
    for unit in UNITS:
        assert list(find_secrets_under_headings(before + unit * (100_000 // len(unit)))) == []


@pytest.mark.timeout(60)
def test_a_secret_deep_in_a_long_map_is_found() -> None:
    text = "passwords: " + "{a: " * 50_000 + FIRST
    assert marked(text).endswith(f"⟦{FIRST}⟧")
