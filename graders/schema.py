"""JSON Schema: whether the final answer, as JSON, fits a schema.

An answer that is no JSON is the policy's failure (0), a schema that can't be used the task's (Failed). Remote
references are never fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from millstream.errors import GraderError, MissingExtra, SettingsError
from millstream.grade import Grade, abstain, score
from millstream.trajectory import Trajectory

VERSION: Final = 1
MAX_DEPTH: Final = 50


def json_schema(*, schema: Mapping[str, Any] | None = None, file: str = "") -> Callable[[Trajectory], Grade]:
    """The grader ``schema``: 1 when the answer fits, else 0. The schema is ``schema``, the JSON in ``file``,
    or else the task's metadata ``schema``; abstains without one. Raises `SettingsError` for one that is none.
    """
    if schema is not None and file:
        raise SettingsError("schema: give schema or file, not both")
    fixed = _read(file) if file else schema
    if fixed is not None:
        try:
            _validator(_canonical(fixed))
        except GraderError as error:
            raise SettingsError(f"[graders.options.schema] {error}") from None

    def grade(t: Trajectory) -> Grade:
        wanted = fixed if fixed is not None else t.task.metadata.get("schema")
        if wanted is None:
            return abstain("no schema: set one in [graders.options.schema] or in the task's metadata")
        return _grade(t.final_answer, _canonical(wanted))

    return grade


def _grade(answer: str | None, schema: str) -> Grade:
    if not answer:
        return score(0.0, label="no_answer", reason="no answer")
    try:
        value = json.loads(answer, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return score(0.0, label="no_json", reason=f"the answer is no JSON: {error}"[:300])
    validator = _validator(schema)
    if _depth(value) > MAX_DEPTH:
        return score(0.0, label="misfit", reason=f"the answer is nested deeper than {MAX_DEPTH}")
    fault = next(iter(validator.iter_errors(value)), None)
    if fault is None:
        return score(1.0, label="fits", reason="fits the schema")
    return score(0.0, label="misfit", reason=f"{fault.json_path}: {fault.message}"[:300])


def _depth(value: Any) -> int:
    """How deep lists and objects are nested."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _canonical(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True)


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    try:
        import jsonschema
        from referencing import Registry
    except ImportError:
        raise MissingExtra("graders", "the grader 'schema'") from None
    loaded = json.loads(schema)
    kind = jsonschema.validators.validator_for(loaded, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(loaded)
    except jsonschema.SchemaError as error:
        raise GraderError(f"the schema is not one: {error.json_path}: {error.message}"[:300]) from None
    return kind(loaded, registry=Registry())


def _read(file: str) -> Any:
    try:
        return json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"[graders.options.schema] file = {file!r}: {error}; it must hold a JSON Schema") from None
