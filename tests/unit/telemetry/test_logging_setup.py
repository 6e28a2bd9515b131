"""The server's log shows tracebacks without local variables."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import structlog
from paddock.telemetry.logging_setup import configure_logging
from paddock.config.schema import LogConfig

configure_logging(LogConfig(format={format!r}))
try:
    secret = "pdk_" + "x" * 10
    raise ValueError("it broke")
except ValueError:
    structlog.get_logger().exception("failed")
"""


@pytest.mark.parametrize("shape", ["console", "json"])
def test_logged_exception_has_no_local_variables(shape: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(format=shape)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "ValueError: it broke" in done.stderr
    assert "pdk_x" not in done.stderr
