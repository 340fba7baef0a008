"""What the tests of docker-compose.yml share: the file as Compose reads it, with made-up secrets."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest
import yaml

SECRETS = {name: f"secret{name.lower().replace('_', '')}" for name in ("REDIS_PASSWORD", "GRAFANA_PASSWORD")}
SECRETS["MILLSTREAM_TOKEN"] = "a-token-that-is-long-enough"
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}")


def interpolated(value, given):
    """A tree with its variables replaced, as Compose does it: ``${A}``, ``${A:-default}``, ``${A:?needed}``, ``$$``."""
    if isinstance(value, dict):
        return {key: interpolated(one, given) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolated(one, given) for one in value]
    if not isinstance(value, str):
        return value

    def replaced(found):
        name, kind, rest = found.groups()
        if given.get(name):
            return given[name]
        assert kind == "-", f"{name} has no value and no default"
        return rest

    return VARIABLE.sub(replaced, value).replace("$$", "$")


@pytest.fixture(scope="session")
def raw(root: Path) -> str:
    """The text of docker-compose.yml."""
    return (root / "docker-compose.yml").read_text(encoding="utf-8")


@pytest.fixture
def compose(raw):
    """docker-compose.yml, merged and interpolated; a test's own copy."""
    return interpolated(yaml.safe_load(raw), SECRETS)


@pytest.fixture
def services(compose):
    return compose["services"]


@pytest.fixture
def ours(services):
    """Our own services, by name."""
    return {name: one for name, one in services.items() if one["image"].startswith("millstream:")}


def until(condition, patience_s=60):
    """Ask until it is so, and return what it said."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        threading.Event().wait(0.1)
    return answer


@pytest.fixture(scope="session")
def wait_until():
    """`until`, for tests."""
    return until
