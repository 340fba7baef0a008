"""Templates: ``{{ item.answer }}`` and ``{{ sample.output_text }}`` in the texts of a hosted grader.

A path is a namespace (``item`` or ``sample``), then names and indexes: ``item.rows[0].name``,
``item.rows.0.name``, ``item["a key"]``. An unknown namespace is refused when the grader is read; a path that
leads nowhere fails the grade. Nothing becomes an empty text. A text is inserted as it is, anything else as
JSON, and what was inserted is never read as a template again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from millstream.errors import SettingsError, nearest
from millstream.graders.hosted.faults import HostedFault

NAMESPACES: Final = ("item", "sample")
_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]\s]+)|\[(?P<index>-?\d+)\]|\[(?P<quote>['\"])(?P<key>.*?)(?P=quote)\]")

Values = Mapping[str, Any]


class Path(Struct, frozen=True):
    """Where a value is: its text, its namespace and the steps from there."""

    text: str
    namespace: str
    steps: tuple[str | int, ...]


Inserted = Callable[[Path, str], str]


def paths_of(template: str, where: str) -> tuple[Path, ...]:
    """The variables of a template. Raises `SettingsError` for one that is no path."""
    return tuple(_path(match[1].strip(), where) for match in _VARIABLE.finditer(template))


def render(template: str, values: Values, inserted: Inserted = lambda _, text: text) -> str:
    """The template filled from ``values`` (``item``, ``sample``); ``inserted`` makes of a path and its text what
    stands in its place. Raises `HostedFault` where a path leads nowhere.
    """

    def filled(match: re.Match[str]) -> str:
        path = _path(match[1].strip(), "template")
        return inserted(path, _shown(_found(path, values)))

    return _VARIABLE.sub(filled, template)


def _path(text: str, where: str) -> Path:
    head = re.match(r"[A-Za-z_]\w*", text)
    if head is None:
        raise SettingsError(
            f"{where}: {{{{ {text} }}}} is no path; write {{{{ item.name }}}} or {{{{ sample.output_text }}}}"
        )
    if head[0] not in NAMESPACES:
        hint = nearest(head[0], list(NAMESPACES))
        raise SettingsError(f"{where}: {{{{ {text} }}}}: no namespace {head[0]!r}{hint}")
    steps: list[str | int] = []
    place = head.end()
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            raise SettingsError(f"{where}: {{{{ {text} }}}}: character {place + 1} is no step of a path (.name or [0])")
        name = step["name"] if step["name"] is not None else step["key"]
        steps.append(int(step["index"]) if step["index"] is not None else name)
        place = step.end()
    return Path(text, head[0], tuple(steps))


def _found(path: Path, values: Values) -> Any:
    value = values[path.namespace]
    for step in path.steps:
        value = _stepped(value, step, path)
    return value


def _stepped(value: Any, step: str | int, path: Path) -> Any:
    if isinstance(value, Mapping) and str(step) in value:
        return value[str(step)]
    if isinstance(value, list | tuple) and re.fullmatch(r"-?\d+", str(step)) and -len(value) <= int(step) < len(value):
        return value[int(step)]
    raise HostedFault(f"{{{{ {path.text} }}}}: {_why(value, step)}", flag=_flag(path))


def _why(value: Any, step: str | int) -> str:
    if isinstance(value, Mapping):
        return f"no {str(step)!r} here{nearest(str(step), [str(key) for key in value])}"
    if isinstance(value, list | tuple):
        return f"no place {step} in a list of {len(value)}"
    return f"{type(value).__name__} has no {str(step)!r}"


def _flag(path: Path) -> str:
    """What lies in a sample's JSON is the sample's fault, anything else the variable's."""
    return "sample_parse_error" if path.text.startswith("sample.output_json") else "invalid_variable_error"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
