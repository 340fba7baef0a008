"""What can be a policy is told from the files of a folder, before anything is registered."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import SettingsError
from millstream.trainer.folders import check_policy

LLAMA = b'{"model_type": "llama"}'


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "no config.json"),
        ({"config.json": b"{}", "model.safetensors": b"x"}, "names no model_type"),
        ({"config.json": b"\xff{", "model.safetensors": b"x"}, "not JSON"),
        ({"config.json": b"[]", "model.safetensors": b"x"}, "not JSON"),
        ({"config.json": LLAMA}, "no weights"),
        ({"config.json": LLAMA, "model.safetensors": b""}, "no weights"),
    ],
)
def test_a_folder_that_is_no_policy_is_refused_with_what_is_missing(
    tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    """A base is champion at once, so it is looked at first."""
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SettingsError, match=why):
        check_policy(tmp_path)


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    """`base` names a folder."""
    (tmp_path / "model").touch()
    with pytest.raises(SettingsError, match="Not a directory"):
        check_policy(tmp_path / "model")


def test_a_folder_with_model_type_and_weights_may_be_one(tmp_path: Path) -> None:
    """Sharded weights too."""
    (tmp_path / "config.json").write_bytes(LLAMA)
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"x")
    check_policy(tmp_path)
