import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from waystation.domain.names import WORKFLOWS_QUEUE

ROOT = Path(__file__).parents[2]
SECRET = re.compile(r"PASSWORD|PWD|_KEY|SECRET|TOKEN")
PINNED = re.compile(r":\d+\.\d+[\w.-]*$")


class Dependency(BaseModel):
    condition: str = "service_started"


class HealthCheck(BaseModel):
    test: list[str] = Field(min_length=2)


class Service(BaseModel):
    image: str
    environment: dict[str, str | None] = {}
    depends_on: dict[str, Dependency] = {}
    healthcheck: HealthCheck | None = None
    ports: list[str] = []
    volumes: list[str] = []
    user: str | None = None


class Compose(BaseModel):
    model_config = ConfigDict(extra="ignore")

    services: dict[str, Service]
    volumes: dict[str, None]


@pytest.fixture(scope="module")
def compose() -> Compose:
    return Compose.model_validate(yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def dockerfile() -> list[str]:
    return (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()


def test_every_image_is_pinned_to_a_version(compose: Compose, dockerfile: list[str]) -> None:
    images = [service.image for service in compose.services.values()]
    images += [line.split()[1] for line in dockerfile if line.startswith("FROM ")]
    assert [image for image in images if not PINNED.search(image)] == []


def test_every_service_that_stays_up_has_a_health_check(compose: Compose) -> None:
    finishing = {
        name
        for service in compose.services.values()
        for name, dependency in service.depends_on.items()
        if dependency.condition == "service_completed_successfully"
    }
    unchecked = {name for name, service in compose.services.items() if service.healthcheck is None}
    assert unchecked == finishing == {"temporal-schema", "temporal-namespace"}


def test_nothing_starts_before_what_it_needs_is_ready(compose: Compose) -> None:
    conditions = {d.condition for service in compose.services.values() for d in service.depends_on.values()}
    assert conditions == {"service_healthy", "service_completed_successfully"}
    assert compose.services["worker"].depends_on.keys() == {"temporal-namespace"}


def test_secrets_come_from_the_environment_only(compose: Compose) -> None:
    secrets = {
        (name, key): value
        for name, service in compose.services.items()
        for key, value in service.environment.items()
        if SECRET.search(key)
    }
    assert len(secrets) == 4
    assert [place for place, value in secrets.items() if value is not None and not value.startswith("${")] == []


def test_no_port_is_open_to_the_network(compose: Compose) -> None:
    ports = [port for service in compose.services.values() for port in service.ports]
    assert len(ports) == 2
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_worker_is_checked_by_whether_it_polls_its_queue(compose: Compose) -> None:
    check = compose.services["worker"].healthcheck
    assert check is not None
    assert f"--task-queue {WORKFLOWS_QUEUE} " in check.test[-1]


def test_the_worker_keeps_its_home_on_a_volume_and_is_not_root(compose: Compose, dockerfile: list[str]) -> None:
    home = re.search(r"WAYSTATION_HOME=(\S+)", "\n".join(dockerfile))
    assert home is not None
    assert compose.services["worker"].volumes == [f"waystation:{home[1]}"]
    assert {"waystation", "postgresql"} == compose.volumes.keys()
    last_stage = dockerfile[max(i for i, line in enumerate(dockerfile) if line.startswith("FROM ")) :]
    assert "USER waystation" in last_stage
    assert compose.services["worker"].user is None
