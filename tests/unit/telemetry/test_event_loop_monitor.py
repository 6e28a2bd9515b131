"""Log lines about steps that held the event loop."""

from __future__ import annotations

from structlog.testing import capture_logs

from paddock.telemetry.event_loop_monitor import EventLoopMonitor


def test_only_long_steps_are_warnings() -> None:
    monitor = EventLoopMonitor()
    with capture_logs() as lines:
        monitor.record_step(0.04, 0.0, "short")
        monitor.record_step(0.08, 0.0, "debug")
        monitor.record_step(0.2, 0.0, "warning")
        monitor.record_step(0.3, 0.0, "within a second of the last")
    assert [(line["log_level"], line["route"]) for line in lines] == [("debug", "debug"), ("warning", "warning")]
