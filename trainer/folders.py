"""Model folders without opening them as models: hashes, dtype, the files that travel along. Loads no torch."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec

from millstream.errors import SettingsError

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
TOKENIZER = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
)
TEMPLATES = ("chat_template.jinja", "chat_template.json")


def file_hash(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def content_hash(folder: Path) -> str:
    """SHA-256 over the names and contents of all files of a folder. Raises `SettingsError` without one."""
    if not folder.is_dir():
        raise SettingsError(f"no model directory at {folder}; give a Hugging Face causal-LM directory")
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(".") and "__pycache__" not in name:
            whole.update(f"{name}\0{file_hash(path)}\n".encode())
    return whole.hexdigest()


def _hash_of(folder: Path, names: tuple[str, ...]) -> str:
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        return ""
    whole = hashlib.sha256()
    for path in found:
        whole.update(f"{path.name}\0{file_hash(path)}\n".encode())
    return whole.hexdigest()


def tokenizer_hash(folder: Path) -> str:
    """The hash of a folder's tokenizer files; '' when it has none."""
    return _hash_of(folder, TOKENIZER)


def template_hash(folder: Path) -> str:
    """The hash of a folder's chat template (a file, or inside tokenizer_config.json); '' when it has none."""
    own = _hash_of(folder, TEMPLATES)
    config = folder / "tokenizer_config.json"
    if own or not config.is_file():
        return own
    template = msgspec.json.decode(config.read_bytes()).get("chat_template")
    return hashlib.sha256(msgspec.json.encode(template)).hexdigest() if template else ""


def model_config(folder: Path) -> dict[str, object]:
    """config.json of a model folder. Raises `SettingsError` when it is no model folder."""
    path = folder / "config.json"
    try:
        config: dict[str, object] = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        raise SettingsError(f"no config.json in {folder}; give a Hugging Face causal-LM directory") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not JSON: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; give a Hugging Face causal-LM directory") from None
    return config


def check_policy(folder: Path) -> None:
    """Whether a folder can be a policy, as far as its files tell. Raises `SettingsError` that says what is missing."""
    if not model_config(folder).get("model_type"):
        raise SettingsError(f"{folder}/config.json names no model_type; give a Hugging Face causal-LM directory")
    if not any(path.name.endswith(WEIGHTS) and path.stat().st_size for path in folder.iterdir() if path.is_file()):
        raise SettingsError(f"no weights in {folder}; give a Hugging Face causal-LM directory with model.safetensors")


def weights_dtype(folder: Path) -> str:
    """The dtype that the folder's weights are kept in: float16, bfloat16 or float32."""
    config = model_config(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")


def copy_companions(source: Path, target: Path) -> None:
    """Copy what is not weights and not there yet: the tokenizer and its template travel byte for byte."""
    for path in sorted(source.iterdir()):
        if path.is_file() and not path.name.endswith(WEIGHTS) and not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)
