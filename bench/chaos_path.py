"""Imported first: the services that tests start are used here, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))
