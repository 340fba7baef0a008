"""YAML files, read as texts, lists and objects alone: no dates, numbers or tags, no anchors that grow without end."""

from __future__ import annotations

from typing import Any

from millstream.errors import Undecodable

SUFFIXES = (".yaml", ".yml")


def decoded(data: bytes) -> Any:
    """The document of a file, every scalar a text. Raises `Undecodable`, also where the library is missing."""
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise Undecodable("YAML needs a library: pip install 'millstream[yaml]'") from None
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, Loader=loader)):
            raise Undecodable("YAML with anchors that are referred to is not read")
        return yaml.load(data, Loader=loader)  # noqa: S506 — a base loader makes texts, lists and dicts
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        first = str(error).replace("\n", " ")[:200]
        raise Undecodable(f"not YAML: {first}") from None
