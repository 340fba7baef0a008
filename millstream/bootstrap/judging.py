"""The judge of the settings: its endpoint and its memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.bootstrap.parts import require
from millstream.loading import Loaded

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime
    from millstream.graders.judges.judge import Judge

MEMORY = "judges.db"
"""The file of verdicts and spending, in the data directory."""


def judge_of(loaded: Loaded, on_close: Callable[[Callable[[], object]], None]) -> Judge | None:
    """The judge of the settings, None where they name no endpoint. ``on_close`` takes what ends it.

    Raises `SettingsError` for settings that contradict each other.
    """
    settings = loaded.settings.judge
    if not settings.base_url:
        return None
    require("a judge ([judge] base_url)", "graders")
    from millstream.adapters.http_client import HttpChat
    from millstream.adapters.sqlite_memory import SqliteMemory
    from millstream.graders.judges.judge import Judge, checked

    checked(settings)
    chat = HttpChat(settings.base_url, os.environ.get(settings.key_env, ""), connections=settings.concurrency)
    on_close(chat.close)
    memory = SqliteMemory(loaded.data / MEMORY, entries=settings.cache_entries)
    on_close(memory.close)
    return Judge(chat, settings, memory)


def meter_judge(runtime: Runtime) -> None:
    """Let the judge of a process that grades tell its figures to the process's monitor, where it has one."""
    if runtime.monitor and runtime.judge_model:
        runtime.judge_model.meter = runtime.monitor.meter
