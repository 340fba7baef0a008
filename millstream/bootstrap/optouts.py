"""Nothing phones home: the opt-outs of every library that would, set before any of them is imported."""

from __future__ import annotations

import os

OPT_OUTS = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_DISABLE_SCHEMA_DETAILS": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def opt_out() -> None:
    """Set them, also for child processes; what the environment says already stands."""
    for name, value in OPT_OUTS.items():
        os.environ.setdefault(name, value)
