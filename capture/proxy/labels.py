"""What a caller tells of a run beside its call: ``X-Millstream-…`` headers, or ``metadata`` of the request under the
same names (``millstream_trajectory``). A header wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from msgspec import Struct, field

from millstream.codec import digest
from millstream.errors import SettingsError
from millstream.events import EndReason, Split
from millstream.forwarding import OWN_PREFIX, Headers

_IN_METADATA: Final = "millstream_"
_TASK: Final = ("task_id", "question", "reference", "split_key", "family")
_WHOLE: Final = ("policy_version", "attempt", "group_size")
_TEXT: Final = ("lineage", "group", "subject")
_ID_LENGTH: Final = 200
Policies = Mapping[str, tuple[str, int]]
"""The lineage ('' is the default one) and version that a model's name stands for."""


class Labels(Struct, frozen=True, kw_only=True):
    """``trajectory``: the run's id, '' when none is given; ``end``: the run is over with this call. ``task`` and
    ``run`` are fields of `millstream.record`.
    """

    trajectory: str = ""
    agent: str = ""
    end: EndReason | None = None
    task: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)


def labels_of(headers: Headers, metadata: Mapping[str, Any], model: str, policies: Policies) -> Labels:
    """The labels of a call. What is no number where one is meant, or no known word, is left out."""
    told = {k.removeprefix(_IN_METADATA): str(v) for k, v in metadata.items() if k.startswith(_IN_METADATA)}
    told |= {_name(name): _text(value) for name, value in headers if name.lower().startswith(OWN_PREFIX)}
    told = {name: value for name, value in told.items() if value}
    run: dict[str, Any] = {name: told[name] for name in _TEXT if name in told}
    run |= {name: int(told[name]) for name in _WHOLE if _is_whole(told.get(name, ""))}
    if model in policies and "policy_version" not in run:
        lineage, run["policy_version"] = policies[model]
        run.setdefault("lineage", lineage)
    run |= {"propensity": share} if (share := _share(told.get("propensity", ""))) is not None else {}
    run |= {"split": told["split"]} if told.get("split") in get_args(Split) else {}
    end = told.get("end", "")
    return Labels(
        trajectory=_bounded(told.get("trajectory", "")),
        agent=told.get("agent", ""),
        end=end if end in get_args(EndReason) else None,  # type: ignore[arg-type]
        task={name.removeprefix("task_"): told[name] for name in _TASK if name in told},
        run=run,
    )


def policies_of(told: Mapping[str, str]) -> Policies:
    """The policies of the settings. Raises `SettingsError` for what is no version."""
    found = {}
    for model, text in told.items():
        lineage, _, version = text.rpartition("/")
        if not _is_whole(version):
            raise SettingsError(f'[proxy] policies: {model!r} = {text!r}; write "LINEAGE/VERSION" or "VERSION"')
        found[model] = (lineage, int(version))
    return found


def _name(header: bytes) -> str:
    return header[len(OWN_PREFIX) :].decode("latin-1").lower().replace("-", "_")


def _text(value: bytes) -> str:
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        return value.decode("latin-1").strip()


def _bounded(identity: str) -> str:
    return identity if len(identity) <= _ID_LENGTH else digest("trajectory", identity)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _share(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 <= found <= 1 else None
