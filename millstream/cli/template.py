"""The commented settings file that ``init`` writes: rendered from the tree, so it cannot go stale."""

from __future__ import annotations

import inspect
import json
from typing import Any

import msgspec

from millstream.settings import Settings

HEAD = """\
# Millstream settings. Every key is here with its default, commented out; uncomment to change.
# MILLSTREAM_SECTION__KEY in the environment wins over this file. Relative paths are relative to it.
"""

EXAMPLES = {
    "graders.files": '["graders.py"]',
    "policy.base": '"path/to/a/hugging-face/causal-lm"',
}


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{}"
    return json.dumps(value)


def render() -> str:
    """The text of a fresh ``millstream.toml``."""
    defaults = Settings()
    parts = [HEAD]
    for section in Settings.__struct_fields__:
        table = getattr(defaults, section)
        lines = [f"# {line}".rstrip() for line in (inspect.getdoc(type(table)) or "").splitlines()]
        parts.append("\n".join(["", *lines, f"[{section}]"]))
        for key, value in msgspec.to_builtins(table).items():
            example = EXAMPLES.get(f"{section}.{key}")
            parts.append(f"# {key} = {_value(value)}" + (f"   # for example {example}" if example else ""))
    return "\n".join(parts) + "\n"
