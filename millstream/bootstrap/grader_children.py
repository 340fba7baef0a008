"""The child process that runs graders of files, and their examples tried in one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.loading import Loaded
from millstream.settings import Graders

if TYPE_CHECKING:
    from millstream.graders.running import Spawn
    from millstream.graders.testing import Tried


def spawn_of(settings: Graders) -> Spawn:
    """Makes a child that may take what the settings allow."""
    from millstream.adapters.children import Bounds, Child

    bounds = Bounds(memory_bytes=settings.memory_bytes, output_bytes=settings.output_bytes)
    return lambda module: Child(module, bounds=bounds)


def try_file(loaded: Loaded, file: Path) -> list[Tried]:
    """The examples of a grader file, each graded as the stream would: in a child, with the settings' options and
    deadline. Raises `SettingsError` when the file can't be loaded or declares none.
    """
    from millstream.graders.testing import try_file as tried

    return tried(loaded.settings.graders, file, spawn_of(loaded.settings.graders))
