import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pydantic import AliasChoices, BaseModel, TypeAdapter, field_validator

from waystation import __version__
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.kernel.temporal_names import QUEUES
from waystation.runtime.temporal.dev_server import FAIRNESS_SETTINGS, NO_VERSION_CHECK, SINGLE_PARTITION_SETTINGS

ROOT = Path(__file__).parents[2]
SECRETS = {"POSTGRES_PASSWORD", "STORE_PASSWORD", "QDRANT_API_KEY", "WAYSTATION_KEY"}
GIVEN = {name: f"the-{name.lower()}" for name in SECRETS}
SECRET = re.compile(r"PASSWORD|PWD|_KEYS?$|SECRET|TOKEN")
PINNED = re.compile(r":v?\d+\.\d+[\w.-]*$")
FINISHING = {"temporal-schema", "temporal-namespace", "store-database", "migrate"}
WORKERS = {"workflows", "agents", "context"}
NEXT = {f"{name}-next" for name in WORKERS}
OURS = {*WORKERS, *NEXT, "migrate", "serve", "codec", "cli"}
OPTIONAL = {"BUILD", "NEXT_BUILD", "PAGES_HOST"}
PROFILES = ("cli", "next")


class Dependency(BaseModel):
    condition: str


class HealthCheck(BaseModel):
    test: list[str]


class Port(BaseModel):
    host_ip: str = "0.0.0.0"
    published: str


class Volume(BaseModel):
    type: str
    target: str = ""


class Service(BaseModel):
    image: str
    command: list[str] | None = None
    environment: dict[str, str | None] = {}
    depends_on: dict[str, Dependency] = {}
    healthcheck: HealthCheck | None = None
    ports: list[Port] = []
    volumes: list[Volume] = []
    container_name: str | None = None
    restart: str | None = None
    stop_grace_period: str | None = None
    mem_limit: str | None = None
    read_only: bool = False
    cap_drop: list[str] = []
    security_opt: list[str] = []
    user: str | None = None
    network_mode: str | None = None
    profiles: list[str] = []

    @field_validator("environment", mode="before")
    @classmethod
    def _read_list(cls, given: dict[str, str | None] | list[str]) -> dict[str, str | None]:
        """Compose shows the variables of a service that extends another one as a list."""
        if isinstance(given, dict):
            return given
        pairs = (variable.partition("=") for variable in given)
        return {name: value if equals else None for name, equals, value in pairs}


class Config(BaseModel):
    content: str


class Compose(BaseModel):
    services: dict[str, Service]
    volumes: dict[str, object]
    configs: dict[str, Config] = {}


def compose_config(
    environment: dict[str, str], *options: str, files: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """What Docker Compose itself makes of the file, or of these; it needs no engine for that."""
    named = [part for file in files for part in ("--file", file)]
    profiles = [part for profile in PROFILES for part in ("--profile", profile)]
    command = [str(Path(sys.executable).with_name("docker-compose")), *named, *profiles, "config"]
    return subprocess.run(
        [*command, "--format", "json", *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def compose() -> Compose:
    parsed = compose_config(GIVEN)
    assert parsed.returncode == 0, parsed.stderr
    return Compose.model_validate_json(parsed.stdout)


@pytest.fixture(scope="module")
def as_written() -> dict[str, Service]:
    """The services with their variables still in place."""
    return Compose.model_validate_json(compose_config({}, "--no-interpolate").stdout).services


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_without_a_secret_nothing_starts_and_it_is_said_how_to_make_one(missing: str) -> None:
    refused = compose_config({name: value for name, value in GIVEN.items() if name != missing})
    assert refused.returncode != 0
    assert f"required variable {missing} is missing a value: make one by openssl rand -hex 32" in refused.stderr


def test_secrets_come_from_the_environment_only(as_written: dict[str, Service]) -> None:
    written = {
        (name, key, value)
        for name, service in as_written.items()
        for key, value in service.environment.items()
        if SECRET.search(key) or (value and "://" in value and "@" in value)
    }
    assert len(written) > 10
    literal = [(name, key) for name, key, value in written if value and not re.search(r"\$\{\w+:(\?[^}]+|-)\}", value)]
    assert literal == []


def test_only_the_variables_that_are_explained_are_read() -> None:
    listed = compose_config({}, "--variables").stdout
    variables = TypeAdapter(dict[str, object]).validate_json(listed)
    assert variables.keys() == SECRETS | OPTIONAL


@pytest.mark.parametrize("variable", ["WAYSTATION_PREVIOUS_KEYS", "WAYSTATION_PLACEHOLDER_KEY"])
def test_every_service_with_the_key_has_the_earlier_keys_too(compose: Compose, variable: str) -> None:
    replaced = compose_config({**GIVEN, variable: "the-earlier-keys"})
    services = Compose.model_validate_json(replaced.stdout).services
    with_key = {name for name, service in services.items() if "WAYSTATION_KEY" in service.environment}
    assert with_key == OURS - {"migrate"}
    earlier = {name: services[name].environment.get(variable) for name in with_key}
    assert earlier == dict.fromkeys(with_key, "the-earlier-keys")
    assert {compose.services[name].environment.get(variable) for name in with_key} == {None}


def test_every_variable_of_ours_is_a_setting(compose: Compose) -> None:
    known = {"TEMPORAL_ADDRESS"}
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        known |= {str(choice) for choice in alias.choices} if isinstance(alias, AliasChoices) else set[str]()
        known.add(f"WAYSTATION_{name.upper()}")
    used = {key for name in OURS for key in compose.services[name].environment}
    assert len(used) > 5
    assert used - known == set()


@pytest.mark.parametrize("service", sorted(OURS))
def test_every_command_of_ours_exists(
    compose: Compose, service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = compose.services[service].command
    assert command
    assert run([*command, "--help"]) == 0, capsys.readouterr().err


def test_every_queue_is_served_by_exactly_one_service(compose: Compose) -> None:
    served = [
        f"waystation-{queue}"
        for service in compose.services.values()
        for command in [service.command or []]
        if "--queues" in command and not service.profiles
        for queue in command[command.index("--queues") + 1].split(",")
    ]
    assert sorted(served) == sorted(QUEUES)


def test_every_image_is_pinned_and_ours_has_the_version_of_the_package(compose: Compose) -> None:
    assert [s.image for s in compose.services.values() if not PINNED.search(s.image)] == []
    assert {compose.services[name].image for name in OURS - NEXT} == {f"waystation:{__version__}"}


def test_the_workers_of_the_next_build_are_those_of_the_present_one_but_for_image_and_build_id() -> None:
    parsed = compose_config({**GIVEN, "BUILD": "1.4", "NEXT_BUILD": "1.5"})
    services = Compose.model_validate_json(parsed.stdout).services
    for name in WORKERS:
        present, following = services[name], services[f"{name}-next"]
        assert (present.image, following.image) == ("waystation:1.4", "waystation:1.5")
        assert present.environment["WAYSTATION_VERSIONING"] == "true"
        assert present.environment["WAYSTATION_BUILD_ID"] == "1.4"
        assert following.environment == {**present.environment, "WAYSTATION_BUILD_ID": "1.5"}
        assert (present.profiles, following.profiles) == ([], ["next"])
        alike: dict[str, object] = {"image": "", "environment": {}, "profiles": []}
        assert following.model_copy(update=alike) == present.model_copy(update=alike)


def test_every_page_that_names_an_image_or_a_wheel_of_ours_names_this_version() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "Dockerfile", ROOT / "docker-compose.yml"]
    named = {
        f"{page.name}: {found[0]}": found[1]
        for page in pages
        for found in re.finditer(r"(?:\bwaystation[-:=]{1,2}|\bBUILD:-)(\d+\.\d+\.\d+\w*)", page.read_text("utf-8"))
    }
    assert {where: version for where, version in named.items() if version != __version__} == {}
    assert len(named) >= 3


def test_every_service_that_stays_up_has_a_health_check(compose: Compose) -> None:
    waited_for = {
        name
        for service in compose.services.values()
        for name, dependency in service.depends_on.items()
        if dependency.condition == "service_completed_successfully"
    }
    unchecked = {name for name, service in compose.services.items() if service.healthcheck is None}
    assert waited_for == FINISHING
    assert unchecked == {*FINISHING, "cli"}


def needed(services: dict[str, Service], name: str) -> set[str]:
    """Everything that is up before this service starts."""
    direct = services[name].depends_on.keys()
    return {*direct, *(further for one in direct for further in needed(services, one))}


def test_nothing_starts_before_what_it_talks_to_is_ready(compose: Compose) -> None:
    services = compose.services
    conditions = {d.condition for service in services.values() for d in service.depends_on.values()}
    assert conditions == {"service_healthy", "service_completed_successfully"}
    early = [
        (name, host)
        for name, service in services.items()
        for key, value in service.environment.items()
        for host in ([value] if re.search("HOST$|SEEDS$", key) else re.findall(r"(?:^|//|@)([a-z-]+):\d", value or ""))
        if host in services and host not in needed(services, name)
    ]
    assert early == []
    assert {"migrate", "temporal-namespace", "qdrant"} <= needed(services, "agents")


def test_workers_can_be_scaled_and_stopped_without_losing_a_turn(compose: Compose) -> None:
    for worker in (compose.services[name] for name in WORKERS):
        assert worker.container_name is None
        assert worker.ports == []
        assert worker.restart == "unless-stopped"
        assert worker.mem_limit is not None
        minutes = re.fullmatch(r"(\d+)m0s", worker.stop_grace_period or "")
        assert minutes is not None
        assert timedelta(minutes=int(minutes[1])) > Settings().worker_grace


def test_ours_run_read_only_and_without_privileges(compose: Compose) -> None:
    for service in (compose.services[name] for name in OURS):
        assert service.read_only
        assert service.cap_drop == ["ALL"]
        assert service.security_opt == ["no-new-privileges:true"]
        assert service.user is None, "the image's own user is not root"


def test_no_port_is_open_to_the_network(compose: Compose) -> None:
    ports = [port for service in compose.services.values() for port in service.ports]
    assert sorted(port.published for port in ports) == ["7233", "8233", "8520"]
    assert {port.host_ip for port in ports} == {"127.0.0.1"}
    on_the_host = {name: service for name, service in compose.services.items() if service.network_mode == "host"}
    assert on_the_host.keys() == {"codec"}
    assert "127.0.0.1:8081" in (on_the_host["codec"].command or [])


def test_pages_have_a_place_for_their_keys_and_start_after_what_they_talk_to(compose: Compose) -> None:
    serve, agents = compose.services["serve"], compose.services["agents"]
    assert {"migrate", "temporal-namespace", "qdrant"} <= needed(compose.services, "serve")
    for name in ("WAYSTATION_KEY", "QDRANT_URL", "QDRANT_API_KEY", "DATABASE_URL"):
        assert serve.environment[name] == agents.environment[name]
    assert [(one.type, one.target) for one in serve.volumes] == [("volume", serve.environment["WAYSTATION_HOME"])]
    assert [(port.host_ip, port.published) for port in serve.ports] == [("127.0.0.1", "8520")]


def test_the_server_is_as_fair_as_the_development_server(compose: Compose) -> None:
    written = compose.configs["temporal-dynamic"].content
    for setting in (*FAIRNESS_SETTINGS, *SINGLE_PARTITION_SETTINGS, NO_VERSION_CHECK):
        name, _, value = setting.partition("=")
        assert f"{name}:\n  - value: {value}\n" in written


def test_every_service_with_the_key_of_the_memory_server_knows_where_it_is(compose: Compose) -> None:
    """Without its address, a container would open an empty memory of its own."""
    urls = {
        name: service.environment.get("QDRANT_URL")
        for name, service in compose.services.items()
        if "QDRANT_API_KEY" in service.environment
    }
    assert urls.keys() >= {"agents", "context", "serve", "cli"}
    assert set(urls.values()) == {"http://qdrant:6333"}


def test_no_container_needs_its_own_memory_to_refuse_a_plain_store(compose: Compose) -> None:
    """Their home folders are gone at each start, but for the one of `serve`."""
    opening = {name for name in OURS if "WAYSTATION_KEY" in compose.services[name].environment} - {"codec"}
    assert opening == {*WORKERS, *NEXT, "serve", "cli"}
    assert {compose.services[name].environment["WAYSTATION_ENCRYPT_AT_REST"] for name in opening} == {"true"}


@contextmanager
def ready_endpoint(status: int) -> Generator[int]:
    """A server whose /readyz answers with this status; its port."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("service", "port"), [("agents", "8090"), ("qdrant", "6333")])
@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_probe_passes_exactly_when_the_service_is_ready(
    compose: Compose, service: str, port: str, status: int, code: int
) -> None:
    check = compose.services[service].healthcheck
    assert check is not None
    assert check.test[0] == "CMD"
    assert port in check.test[-1]
    with ready_endpoint(status) as free:
        probe = [part.replace(port, str(free)) for part in check.test[1:]]
        assert subprocess.run(probe, capture_output=True, timeout=30, check=False).returncode == code


def test_the_probe_asks_where_the_worker_answers(compose: Compose) -> None:
    for name in WORKERS:
        assert compose.services[name].environment["WAYSTATION_HEALTH_ADDRESS"] == "0.0.0.0:8090"


def test_the_page_on_deployment_names_settings_and_services_that_exist(compose: Compose) -> None:
    page = (ROOT / "docs" / "how-to" / "deploy-with-containers.md").read_text(encoding="utf-8")
    settings = {f"WAYSTATION_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"WAYSTATION_[A-Z_]+", page)) - settings == set()
    assert [name for name in compose.services if f"`{name}`" not in page] == []
