"""The scripts of bench/ that make chaos, as modules."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent.parent / "bench"))
