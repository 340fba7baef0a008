"""Settings that can't be meant are refused before anything starts, with the key and where it came from."""

from __future__ import annotations

import pytest

from millstream.errors import SettingsError
from millstream.loading import known_keys, load

REFUSED = [
    ("assembly", "idle_s", "-1"),
    ("assembly", "idle_s", "nan"),
    ("assembly", "max_age_s", "inf"),
    ("assembly", "max_age_s", "1e300"),
    ("assembly", "max_events", "0"),
    ("assembly", "max_bytes", "1e3"),
    ("assembly", "max_revisions", "99999999999999999999"),
    ("capture", "max_text_bytes", "-3"),
    ("capture", "shares", "[0, 0, 0]"),
    ("capture", "shares", "[0.5, nan, 0.5]"),
    ("capture", "shares", "[1, -1, 1]"),
    ("capture", "shares", "[1, 1]"),
    ("capture", "shares", '"half"'),
    ("graders", "attempts", "0"),
    ("graders", "timeout_s", "0"),
    ("graders", "enabled", '"exact"'),
    ("graders", "options", "7"),
    ("buffer", "priority_tau_s", "0"),
    ("buffer", "near_duplicate", "1.5"),
    ("buffer", "max_rollouts", "true"),
    ("trigger", "min_groups", "0"),
    ("trainer", "tokens_per_batch", "0"),
    ("trainer", "learning_rate", "-1.0"),
    ("gate", "alpha", "2"),
    ("gate", "tasks", "-300"),
    ("policy", "base", "7"),
]


@pytest.mark.parametrize(("section", "key", "value"), REFUSED)
def test_a_value_that_cannot_be_meant_is_refused(tmp_path, section, key, value):
    """Negative, zero where something is divided, not finite, huge, or of another type."""
    file = tmp_path / "millstream.toml"
    file.write_text(f"[{section}]\n{key} = {value}\n")
    with pytest.raises(SettingsError, match=rf"{section}\.{key}"):
        load(file, environ={})


@pytest.mark.parametrize("value", ["-1", "abc", "", "NaN", "[1]", "\udcff", "{}"])
def test_a_variable_that_cannot_be_meant_is_named(tmp_path, value):
    """The message says which variable; bytes that are no text too."""
    name = "MILLSTREAM_BUFFER__MAX_BYTES"
    (tmp_path / "millstream.toml").touch()
    with pytest.raises(SettingsError, match=name):
        load(tmp_path / "millstream.toml", environ={name: value})


@pytest.mark.parametrize("text", [b"x = " + b"[" * 20000 + b"]" * 20000, b"\xff", b"[assembly", b"assembly = 3"])
def test_a_file_that_is_no_settings_is_refused(tmp_path, text):
    """Deep nesting, bytes that are no UTF-8, TOML that is cut, a section that is none."""
    file = tmp_path / "millstream.toml"
    file.write_bytes(text)
    with pytest.raises(SettingsError, match=r"millstream\.toml"):
        load(file, environ={})


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    """Some editors write one."""
    file = tmp_path / "millstream.toml"
    file.write_bytes(b"\xef\xbb\xbf[assembly]\nidle_s = 5\n")
    assert load(file, environ={}).settings.assembly.idle_s == 5.0


def test_a_home_that_is_nobodys_is_named():
    """`~nobody/x` is refused with what was written."""
    loaded = load(environ={}, options={"storage.data": "~no-such-user/x"})
    with pytest.raises(SettingsError, match="~no-such-user/x"):
        _ = loaded.data


@pytest.mark.parametrize(
    "value",
    [
        *("", "nan", "1e999", "9" * 400, "-1", "null", "true", "{}", "[]", "[null]", "[1e999]", '{"a": {"b": 1}}'),
        *("[" * 5000, '{"a":' * 3000, "\x00", "\ud800", "x" * 100_000, "~nobody-of-that-name", "/dev/zero"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_a_hostile_value_of_any_setting_is_taken_or_a_settings_error(tmp_path, value):
    """From a variable and from an option: never another error, and the message stays short."""
    file = tmp_path / "millstream.toml"
    file.touch()
    for key in known_keys():
        variable = f"MILLSTREAM_{key.replace('.', '__')}".upper()
        for given in ({"environ": {variable: value}}, {"environ": {}, "options": {key: value}}):
            try:
                load(file, **given)
            except SettingsError as refused:
                assert len(str(refused)) < 1000  # noqa: PT017 - what is raised is one of two right answers
