"""The command line. Commands are imported when they are asked for, so ``--help`` answers at once."""

from __future__ import annotations

from millstream.cli.app import main

__all__ = ["main"]
