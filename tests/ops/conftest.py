"""What the tests of docker-compose.yml share: the file as Compose reads it, with made-up secrets."""

from __future__ import annotations

import re
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


@pytest.fixture(scope="session")
def compose(raw):
    """docker-compose.yml, merged and interpolated."""
    return interpolated(yaml.safe_load(raw), SECRETS)


@pytest.fixture(scope="session")
def services(compose):
    return compose["services"]


@pytest.fixture(scope="session")
def ours(services):
    """Our own services, by name."""
    return {name: one for name, one in services.items() if one["image"].startswith("millstream:")}
