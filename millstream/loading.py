"""Where settings come from: a TOML file, then ``MILLSTREAM_*`` variables, then options.

``MILLSTREAM_BUFFER__MAX_BYTES=1000`` sets ``[buffer] max_bytes``. Relative paths are relative to the
settings file. An unknown key fails and names the nearest known one; a wrong type names the key and
where its value came from.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from millstream.errors import SettingsError, nearest
from millstream.settings import Section, Settings

PREFIX = "MILLSTREAM_"
_SHOWN = 200
NOT_SETTINGS = frozenset({"MILLSTREAM_TOKEN", "MILLSTREAM_DEBUG", "MILLSTREAM_REDACT_KEY"})
"""Variables with our prefix that are read elsewhere."""


class Loaded(Struct, frozen=True):
    """Settings with where each value came from (``default``, ``file``, the variable, ``option``)."""

    settings: Settings
    root: Path
    sources: dict[str, str]

    def path(self, value: str) -> Path:
        """A path of the settings, absolute (relative ones are relative to the settings file)."""
        try:
            return (self.root / Path(value).expanduser()).resolve()
        except (RuntimeError, ValueError, OSError) as error:
            raise SettingsError(f"{value!r} is no path: {error}") from None

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.path(self.settings.storage.data)

    def database(self, url: str) -> Path:
        """The file behind a ``sqlite:///`` URL; a relative one lies in the data directory."""
        if not url.startswith("sqlite:///"):
            raise SettingsError(f"not a sqlite URL: {url!r}; write sqlite:///NAME or sqlite:////ABSOLUTE/PATH")
        return (self.data / url.removeprefix("sqlite:///")).resolve()


def _sections() -> dict[str, type[Section]]:
    return {name: kind for name, kind in get_type_hints(Settings).items() if isinstance(kind, type)}


def known_keys() -> dict[str, Any]:
    """Every key as ``section.key`` with its default."""
    plain = msgspec.to_builtins(Settings())
    return {f"{section}.{key}": value for section, table in plain.items() for key, value in table.items()}


def _refuse_unknown(tree: Mapping[str, Any], where: str) -> None:
    known = known_keys()
    sections = sorted({key.split(".")[0] for key in known})
    for section, table in tree.items():
        if section not in sections:
            leaf = [k for k in known if k.endswith("." + section)]
            hint = f"; did you mean {' or '.join(leaf)}?" if leaf else nearest(section, sections)
            raise SettingsError(f"{where}: unknown section [{section}]{hint}")
        if not isinstance(table, Mapping):
            raise SettingsError(f"{where}: {section!r} must be a table: write [{section}] and keys below it")
        for key in table:
            if f"{section}.{key}" not in known:
                keys = [k.split(".")[1] for k in known if k.startswith(section + ".")]
                raise SettingsError(f"{where}: unknown key {key!r} in [{section}]{nearest(key, keys)}")


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    found = {}
    for name, value in environ.items():
        if name.startswith(PREFIX) and "__" in name and name not in NOT_SETTINGS:
            section, _, key = name.removeprefix(PREFIX).lower().partition("__")
            _refuse_unknown({section: {key: value}}, f"environment variable {name}")
            found[f"{section}.{key}"] = (name, value)
    return found


def _convert(key: str, value: Any, source: str) -> Any:
    section, _, leaf = key.partition(".")
    kind = _sections()[section]
    hint, bounded = get_type_hints(kind)[leaf], get_type_hints(kind, include_extras=True)[leaf]
    if isinstance(value, str) and source != "file" and hint is not str:
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            value = tuple(part.strip() for part in value.split(",")) if "tuple" in str(hint) else value
    numbers = [part for part in (value if isinstance(value, list | tuple) else [value]) if isinstance(part, float)]
    if not all(map(math.isfinite, numbers)):
        raise SettingsError(f"{source}: {key} = {value!r}: a setting must be finite")
    if key == "capture.shares" and isinstance(value, list | tuple) and not any(value):
        raise SettingsError(f"{source}: {key} = {value!r}: at least one share must be above 0")
    try:
        os.fsencode(str(value))
        return msgspec.convert(value, bounded, strict=True)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise SettingsError(
            f"{source}: {key} = {_shown(value)}: {str(error)[:_SHOWN]}; it must be {getattr(hint, '__name__', hint)}"
        ) from None


def _shown(value: Any) -> str:
    """The beginning of a value, for a message."""
    told = repr(value)
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}…"


def load(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read settings. ``file`` None: ``millstream.toml`` of the current folder if there is one.

    ``options`` are ``section.key`` → value. Raises `SettingsError`.
    """
    path = file or Path("millstream.toml")
    tree: dict[str, Any] = {}
    if file is not None and not path.is_file():
        raise SettingsError(f"no settings file at {path}; `millstream init` writes one")
    if path.is_file():
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(f"{path} is not TOML: {error}") from None
        except OSError as error:
            raise SettingsError(f"{path} can't be read: {error.strerror}") from None
        _refuse_unknown(tree, str(path))
    values = known_keys()
    sources = dict.fromkeys(values, "default")
    given: dict[str, tuple[str, Any]] = {f"{s}.{k}": ("file", v) for s, t in tree.items() for k, v in t.items()}
    given.update(_from_environment(os.environ if environ is None else environ))
    given.update({key: ("option", value) for key, value in (options or {}).items()})
    for key, (source, value) in given.items():
        if key not in values:
            raise SettingsError(f"option: unknown setting {key!r}{nearest(key, list(values))}")
        values[key], sources[key] = _convert(key, value, source if source != "file" else "file"), source
    nested: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, leaf = key.partition(".")
        nested.setdefault(section, {})[leaf] = value
    return Loaded(msgspec.convert(nested, Settings), path.parent.resolve(), sources)
