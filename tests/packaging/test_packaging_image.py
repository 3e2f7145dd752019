"""What the Dockerfile promises, as far as its text shows it: nothing here builds an image."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8")).splitlines()
STAGES = [number for number, line in enumerate(LINES) if line.startswith("FROM ")]
BUILD, LAST = LINES[: STAGES[-1]], LINES[STAGES[-1] :]


def copied() -> list[str]:
    """What comes from this checkout, in order."""
    lines = [line.split()[1:-1] for line in BUILD if line.startswith("COPY ")]
    return [source for sources in lines for source in sources]


def test_both_stages_have_the_same_pinned_python() -> None:
    images = {LINES[number].split()[1] for number in STAGES}
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", images.pop())


def test_dependencies_come_before_the_code_so_that_their_layer_is_kept() -> None:
    install = next(number for number, line in enumerate(BUILD) if "uv pip install" in line)
    before = [line for line in BUILD[:install] if line.startswith("COPY ")]
    assert before == ["COPY pyproject.toml requirements.lock ./"]


def test_dependencies_have_the_versions_and_hashes_of_the_lock_and_need_no_compiler() -> None:
    (install,) = [line for line in BUILD if "uv pip install" in line]
    assert "--constraints requirements.lock" in install
    assert "--only-binary :all:" in install
    assert "--no-verify-hashes" not in install


def test_the_image_can_send_notices_and_write_reports_in_every_form() -> None:
    (install,) = [line for line in BUILD if "uv pip install" in line]
    named = re.findall(r"--extra (\S+)", install)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert named == ["notices", "reports"]
    assert extras.keys() >= set(named)


def test_every_package_gets_into_the_image_and_nothing_else_of_the_checkout() -> None:
    code = ["activities", "waystation", "workers", "workflows"]
    beside = ["CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "requirements.lock"]
    assert sorted(copied()) == sorted([*code, *beside])
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignored[0] == "*"
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sorted(copied())


def test_the_last_stage_has_no_build_tools_and_does_not_run_as_root() -> None:
    text = "\n".join(LAST)
    assert "apt-get" not in text
    assert not re.search(r"\buv\b|pip install (?!.*--no-index)", text)
    (user,) = [line.split()[1] for line in LAST if line.startswith("USER ")]
    assert int(user) > 0
    assert f"--uid {user} " in text


def test_the_image_holds_no_secret() -> None:
    given = [line for line in LINES if line.startswith(("ENV ", "ARG "))]
    assert [line for line in given if re.search(r"PASSWORD|_KEY|SECRET|TOKEN", line)] == []
