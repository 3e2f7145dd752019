"""Pairs of user and password, what somebody says, addresses of webhooks, and secrets over lines: ⟦this⟧ goes."""

from tests.plugins.redaction.test_presidio_secrets import mark_secrets, split_cases, strip_marks

IN_ONE_LINE = r"""
{"user":"x","password":"⟦a\"b1C2⟧"}
<property name="password">⟦Tr0ub4dor3⟧</property>
<string name="db_password">⟦Tr0ub4dor3⟧</string>
<entry key='password'>⟦Tr0ub4dor3⟧</entry>
<key>password</key><string>⟦Tr0ub4dor3⟧</string>
requests.get(url, auth=("bob", "⟦Tr0ub4dor3⟧"))
HTTPBasicAuth('bob','⟦Tr0ub4dor3⟧')
new NetworkCredential("bob","⟦Tr0ub4dor3⟧")
DriverManager.getConnection(url,"root","⟦Tr0ub4dor3⟧")
db.connect("host", "root", "⟦Tr0ub4dor3⟧")
smtp.login("bob", "⟦Tr0ub4dor3⟧")
$c = ConvertTo-SecureString "⟦Tr0ub4dor3⟧" -AsPlainText
Password - ⟦Tr0ub4dor3⟧
password -> ⟦Tr0ub4dor3⟧
Password – ⟦Tr0ub4dor3⟧
Use ⟦Tr0ub4dor3⟧ as the password
{"key":"password","val":"⟦Tr0ub4dor3⟧"}
[["password","⟦Tr0ub4dor3⟧"]]
{"password": "⟦a\\b\"c9X⟧"}
{\"password\":\"⟦a\\\"b1C2⟧\"}
the pw for prod is ⟦Zebra-crossing⟧
The pw for prod is ⟦hunter2⟧.
pw is ⟦Sommer2024!⟧
the pass for the db is ⟦xK9-ww!⟧
my password is ⟦swordfish⟧
my password is ⟦Sommer⟧, by the way
My password's ⟦hunter22⟧
password: login: ada / ⟦Sommer2024!⟧
login: ada / ⟦Sommer2024!⟧
Login: ada@example.org / ⟦Sommer2024!⟧
user/pass: ada / ⟦Sommer2024!⟧
credentials: ada:⟦S3cr3t!⟧
creds are ada / ⟦Sommer2024!⟧
admin:⟦S3cr3t@host⟧
admin:⟦S3cr3t⟧@db.example.org
username ada, pw ⟦Sommer2024!⟧
root:⟦toor99!⟧@10.2.3.4
log in as ada with ⟦Sommer2024!⟧
AC0123456789abcdef0123456789abcdef:⟦0123456789abcdef0123456789abcdee⟧
https://outlook.office.com/webhook/⟦3a1b2c3d-1111-2222-3333-444455556666@3a1b2c3d-1111-2222-3333-444455556666/IncomingWebhook/0123456789abcdef0123456789abcdef/3a1b2c3d-1111-2222-3333-444455556666⟧
https://contoso.webhook.office.com/webhookb2/⟦3a1b2c3d-1111-2222-3333-444455556666@3a1b2c3d-1111-2222-3333-444455556666/IncomingWebhook/0123456789abcdef0123456789abcdef/3a1b2c3d-1111-2222-3333-444455556666⟧
https://chat.googleapis.com/v1/spaces/AAAA/messages?key=⟦AIzaSyDdI0hCZtE6vySjMm-WEfRq3CPzqKqqsHI⟧&token=⟦abc-Def123_x%3D⟧
https://hooks.slack.com/services/⟦T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX⟧
https://discord.com/api/webhooks/123456789012345678/⟦aB3-dE_5aB3-dE_5aB3-dE_5aB3-dE_5⟧
https://discord.com/api/v10/webhooks/123456789012345678/⟦aB3-dE_5aB3-dE_5aB3-dE_5aB3-dE_5⟧
https://ptb.discord.com/api/webhooks/123456789012345678/⟦aB3-dE_5aB3-dE_5aB3-dE_5aB3-dE_5⟧
https://prod-01.westus.logic.azure.com:443/workflows/0123456789abcdef/triggers/manual/paths/invoke?api-version=2016&sig=⟦aB3-dE_5aB3-dE_5aB3⟧
https://open.feishu.cn/open-apis/bot/v2/hook/⟦3a1b2c3d-1111-2222-3333-444455556666⟧
https://mattermost.example.com/hooks/⟦x7yz8abc9def0ghi1jkl2mno3p⟧
key: ⟦LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFcEFJQkFBS0NBUUVBeDdrcTJtVm44c1FwTHJUMHVXeVozYkVkRmhKa05wUnRWeFl6QmNEZUdoSWpLbE1u⟧
client-key-data: ⟦LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFcEFJQkFBS0NBUUVBeDdrcTJtVm44c1FwTHJUMHVXeVozYkVkRmhKa05wUnRWeFl6QmNEZUdoSWpLbE1u⟧
"""  # noqa: E501
OVER_LINES = (
    "User name,Access key ID,Secret access key\n"
    "ada,⟦AKIAIOSFODNN7Q3XAMPL⟧,⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ8nTvLk2M⟧\n",
    "User name,Password,Access key ID,Secret access key\n"
    "ada,,⟦AKIAIOSFODNN7Q3XAMPL⟧,⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ8nTvLk2M⟧\n",
    "Access key ID,Secret access key\n⟦AKIAIOSFODNN7Q3XAMPL⟧,⟦wJalrXUtnFEMI/KlMDENG/bPxRfiCYzQ/nTvLkwM⟧\n",
    "PuTTY-User-Key-File-2: ssh-rsa\nComment: rsa-key\nPublic-Lines: 1\nAAAAB3NzaC1yc2EAAAABJQAAAQEAgeg2A4\n"
    "Private-Lines: 2\n⟦AAABAE0bzjXzHWm8Wl0uyJ5u8uDK8Zg3cYpS3zHFe1mh2oYzZPuNZMCP0jbQeKtr\n"
    "x0uyIkmzkxLrPu3wzFkNkKlQcvV6pMHx6YV3Ynlr⟧\nPrivate-MAC: ⟦0123456789abcdef0123456789abcdef01234567⟧\n",
    "password: |\n  ⟦swordfish-99⟧\nother: x",
    "  api_key: >-\n    ⟦abcdef1234567890⟧\n",
    "db.password=\\\n    ⟦swordfish99⟧\n",
    "db.password=⟦swordfish\\\n    continued99⟧\n",
    'password=(\n    "⟦swordfish⟧"\n)',
    'PASSWORD = (\n    "⟦swordfish⟧"\n    "⟦continued99⟧"\n)',
    "tool --user x --password \\\n  ⟦swordfish99⟧ --host y",
    'password = """⟦swordfish99⟧"""',
    'password = """\n⟦swordfish99\nxx⟧"""\n',
    "password = '''⟦swordfish99⟧'''",
    "Passwords:\n- ⟦swordfish99⟧\n- ⟦Zebra-crossing⟧\n",
    "Passwords:\n\n* ⟦swordfish99⟧\n* `⟦Zebra-crossing⟧`\n",
    "## Passwords\n\n- db: ⟦swordfish99⟧\n- mail: ⟦Zebra7⟧\n",
    "## Passwords\n\n1. ⟦swordfish99⟧\n2. **⟦Zebra7crossing⟧**\n",
    "password:\n  ⟦swordfish99⟧\n",
    "API key:\n    ⟦vN8rTq3LxZ0pKw5b⟧\n",
)
NO_SECRET = r"""
<string name="new_password">Your password</string>
The password - the one you chose - is reset.
signal.connect("clicked", "handler", "after")
["password", "required"]
token -> the next one
my password is wrong, my password is not working, our password is too short
my password is still expired; is my password is required?
the pass is required, pw: string, pass: true, the pass was great!
user: /usr/bin/x2, login: GET /api/v1
user: node:18-alpine, image: postgres:15.2-alpine, root:x:0:0
postgresql+asyncpg://user:pass@hostname/dbname?cache_size=500
pkg:npm@1.2.3, docker:image1@sha256, mailto:bob2@host, from:bob1@corp.example
https://discord.com/api/webhooks and https://git.example.com/repo/hooks/pre-commit
-----BEGIN CERTIFICATE----- LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSURkekNDQWwrZ0F3SUJBZ0lFQWdBQXVUQU5CZ2txaGtp
AC0123456789abcdef0123456789abcdef
--password \
"""
NO_SECRET_OVER_LINES = (
    "password: |\n  The password must be long\nother: x",
    "token = \\\n    self.validator.get_token(\n",
    "password = \\\n    settings.password\n",
    'INVALID_PASSWORD = (\n    "Please enter a correct password"\n    "and try again."\n)',
    'password = """The password of the account, which is required."""',
    "## Passwords\n\n- Overview\n- Hashing\n- Two words: kept\n",
    "I set the user name,password,and then\nwent home,slept,and so on",
    "Private-Lines: none\nPublic-Lines: 1\nAAAAB3NzaC1yc2EAAAABJQAAAQEAgeg2A4\n",
)


def test_the_secret_of_a_pair_a_block_or_an_address_is_found() -> None:
    texts = [*split_cases(IN_ONE_LINE), *OVER_LINES]
    assert {text: mark_secrets(strip_marks(text)) for text in texts} == {text: text for text in texts}


def test_what_only_looks_like_a_pair_or_a_block_stays() -> None:
    texts = [*split_cases(NO_SECRET), *NO_SECRET_OVER_LINES]
    assert {text: mark_secrets(text) for text in texts} == {text: text for text in texts}
