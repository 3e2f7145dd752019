"""Structures of several lines with planted values: each is redacted where it stands plain."""

from typing import NamedTuple


class Structure(NamedTuple):
    """A text whose lines say together that values in it are private."""

    name: str
    text: str
    planted: tuple[str, ...]


PASSWORD, OTHER, THIRD = "tr4nqu1l-Otter-88x", "Wd9kQz7LmP2v", "vN8rTq3LxZ0pKw5b"
PHONES = ("0171 4459 8821", "0163 7720 4418")

_KEY_LINES = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        "MIIEpAIBAAKCAQEAx7kq2mVn8sQpLrT0uWyZ3bEdFhJkNpRtVxYzBcDeGhIjKlMn",
        "OpQrStUvWxYz0123456789AbCdEfGhIjKlMnOpQrStUvWxYz0123456789AbCdEf",
        "GhIjKlMnOpQrStUvWxYz0123456789AbCdEfGhIjKlMnOpQrStUvWxYz01234567",
        "-----END RSA PRIVATE KEY-----",
    ]
)

STRUCTURES = (
    Structure("csv", f"name,password,team\nana,{PASSWORD},red\nben,{OTHER},blue\n", (PASSWORD, OTHER)),
    Structure("csv quoted", f'"user","password"\n"ana","{PASSWORD}"\n"ben","{OTHER}"\n', (PASSWORD, OTHER)),
    Structure("csv semicolons", f"name;password;team\nana;{PASSWORD};red\nben;{OTHER};blue\n", (PASSWORD, OTHER)),
    Structure("tsv", f"name\tpassword\tteam\nana\t{PASSWORD}\tred\nben\t{OTHER}\tblue\n", (PASSWORD, OTHER)),
    Structure("pipes", f"| name | password |\n|---|---|\n| ana | {PASSWORD} |\n| ben | {OTHER} |\n", (PASSWORD, OTHER)),
    Structure(
        "csv with commas and lines in quotes",
        f'name,note,password\nana,"red, or blue",{PASSWORD}\nben,"two\nlines",{OTHER}\n',
        (PASSWORD, OTHER),
    ),
    Structure(
        "psql", f" user |      password\n------+-----------\n ana  | {PASSWORD}\n ben  | {OTHER}\n", (PASSWORD, OTHER)
    ),
    Structure(
        "grid",
        f"+------+----------+\n| user | password |\n+======+==========+\n| ana  | {PASSWORD} |\n+------+----------+\n",
        (PASSWORD,),
    ),
    Structure(
        "postgresql's dump",
        f"COPY public.users (name, password) FROM stdin;\nana\t{PASSWORD}\nben\t{OTHER}\n\\.\n",
        (PASSWORD, OTHER),
    ),
    Structure(
        "names and values",
        f"Key          Value\n---          -----\nDB_PASSWORD  {PASSWORD}\nport         5432\n",
        (PASSWORD,),
    ),
    Structure("phones in csv", f"name,phone,team\nana,{PHONES[0]},red\nben,{PHONES[1]},blue\n", PHONES),
    Structure("phones in tsv", f"name\tphone\tteam\nana\t{PHONES[0]}\tred\nben\t{PHONES[1]}\tblue\n", PHONES),
    Structure(
        "sql insert",
        f"INSERT INTO users (name, password) VALUES\n  ('ana', '{PASSWORD}'),\n  ('ben', '{OTHER}');\n",
        (PASSWORD, OTHER),
    ),
    Structure(
        "sql columns over lines",
        f"INSERT INTO users (\n  name,\n  password\n)\nVALUES (\n  'ana',\n  '{PASSWORD}'\n);\n",
        (PASSWORD,),
    ),
    Structure("yaml list", f"passwords:\n  - {PASSWORD}\n  - {OTHER}\n", (PASSWORD, OTHER)),
    Structure("yaml nested", f"database:\n  password:\n    {PASSWORD}\n", (PASSWORD,)),
    Structure(
        "kubernetes secret",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ntype: Opaque\ndata:\n  user: YW5hLW1pbGxlcg==\n"
        "  pass: dHI0bnF1MWwtT3R0ZXItODh4\n",
        ("dHI0bnF1MWwtT3R0ZXItODh4",),
    ),
    Structure(
        "kubernetes environment",
        f"env:\n  - name: DB_PASSWORD\n    value: {PASSWORD}\n  - name: PORT\n    value: '5432'\n",
        (PASSWORD,),
    ),
    Structure("next line", f"Password:\n{PASSWORD}\n", (PASSWORD,)),
    Structure("next line after a blank", f"Password:\n\n{PASSWORD}\n", (PASSWORD,)),
    Structure("api key on the next line", f"API key:\n    {THIRD}\n", (THIRD,)),
    Structure("json over lines", f'{{\n  "user": "ana",\n  "password":\n    "{PASSWORD}"\n}}\n', (PASSWORD,)),
    Structure("json list", f'{{\n  "passwords": [\n    "{PASSWORD}",\n    "{OTHER}"\n  ]\n}}\n', (PASSWORD, OTHER)),
    Structure(
        "json name and value",
        f'[\n  {{\n    "name": "DB_PASSWORD",\n    "value": "{PASSWORD}"\n  }}\n]\n',
        (PASSWORD,),
    ),
    Structure("xml over lines", f"<login>\n  <password>\n    {PASSWORD}\n  </password>\n</login>\n", (PASSWORD,)),
    Structure(
        "xml in one line", f"<login>\n  <user>ana</user>\n  <password>{PASSWORD}</password>\n</login>\n", (PASSWORD,)
    ),
    Structure("xml key and value", f'<add\n  key="DbPassword"\n  value="{PASSWORD}"\n/>\n', (PASSWORD,)),
    Structure("pgpass", f"db.example.org:5432:shop:ana:{PASSWORD}\nlocalhost:5432:*:ben:{OTHER}\n", (PASSWORD, OTHER)),
    Structure("netrc", f"machine db.example.org\n  login ana\n  password {PASSWORD}\n", (PASSWORD,)),
    Structure("ini", f"[db]\nuser = ana\npassword =\n  {PASSWORD}\n", (PASSWORD,)),
    Structure("private key", f"Our key:\n{_KEY_LINES}\nKeep it.\n", tuple(_KEY_LINES.splitlines()[1:4])),
    Structure(
        "private key in yaml",
        "tls:\n  key: |\n" + "".join(f"    {line}\n" for line in _KEY_LINES.splitlines()),
        tuple(_KEY_LINES.splitlines()[1:4]),
    ),
    Structure(
        "authorization header",
        "GET /orders HTTP/1.1\nHost: shop.example.org\nAuthorization:\n  Bearer vN8rTq3LxZ0pKw5bYh7cJd2m\n",
        ("vN8rTq3LxZ0pKw5bYh7cJd2m",),
    ),
    Structure("env files", f"DB_USER=ana\nDB_PASSWORD={PASSWORD}\nAPI_TOKEN={THIRD}\n", (PASSWORD, THIRD)),
    Structure(
        "aws credentials",
        "[default]\naws_access_key_id = AKIAIOSFODNN7Q3XAMPL\n"
        "aws_secret_access_key = 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\n",
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ8nTvLk2M",),
    ),
    Structure("iban over lines", "IBAN:\nDE89 3704 0044 0532 0130 00\n", ("DE89 3704 0044 0532 0130 00",)),
    Structure("card", "Card number:\n4111 1111 1111 1111\n", ("4111 1111 1111 1111",)),
)
