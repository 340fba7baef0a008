"""Nothing phones home and nothing chatters: what every library is told by the environment, set before any of
them is imported.
"""

from __future__ import annotations

import os

OPT_OUTS = {
    "DO_NOT_TRACK": "1",
    "GIT_PYTHON_REFRESH": "quiet",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_DISABLE_SCHEMA_DETAILS": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def opt_out() -> None:
    """Set them, also for child processes; what the environment says already stands."""
    for name, value in OPT_OUTS.items():
        os.environ.setdefault(name, value)
