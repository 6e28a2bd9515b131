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
def test_an_exception_is_shown_without_the_variables_around_it(shape: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(format=shape)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "ValueError: it broke" in done.stderr
    assert "pdk_x" not in done.stderr
