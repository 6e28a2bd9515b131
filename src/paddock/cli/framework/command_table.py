"""All top-level commands, the modules that register them, and their one-line summaries."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "serve": ("admin.serve_command",),
    "console": ("admin.console_command",),
    "run": ("run.run_command",),
    "runs": ("run.runs_commands", "run.runs_watch_commands", "run.runs_action_commands"),
    "chat": ("chat.chat_command",),
    "session": ("chat.session_commands",),
    "doctor": ("admin.doctor_command",),
    "sandbox": (
        "sandbox.create_command",
        "sandbox.sandbox_commands",
        "sandbox.exec_command",
        "sandbox.shell_command",
        "sandbox.copy_command",
        "sandbox.logs_command",
        "sandbox.network_command",
        "sandbox.preview_commands",
        "sandbox.snapshot_commands",
        "sandbox.screenshot_command",
        "sandbox.desktop_commands",
        "sandbox.recording_commands",
    ),
    "tool": ("sandbox.tool_commands",),
    "task": ("run.task_commands",),
    "llm": (
        "llm.model_commands",
        "llm.log",
        "llm.show",
        "llm.export",
        "llm.usage",
        "llm.record",
        "llm.replay",
    ),
    "image": ("image.image_commands",),
    "kind": ("image.kind_command",),
    "pool": ("sandbox.pool_commands",),
    "key": ("admin.key_commands",),
    "keys": ("admin.key_commands",),
    "config": ("admin.config_commands",),
    "events": ("admin.events_command",),
    "version": ("admin.version_command",),
}
"""Top-level commands and the modules below `paddock.cli` that register them; only those of the running command load."""
SUMMARIES: Mapping[str, str] = {
    "serve": "Start the server.",
    "console": "Open the console in a browser, signed in.",
    "run": "Run tasks and collect their output files.",
    "runs": "List, show, cancel and remove task runs.",
    "chat": "Chat with an agent that works in sandboxes.",
    "session": "List, show, search, export and remove chat sessions.",
    "doctor": "Check this machine and suggest fixes.",
    "sandbox": "Create, use and remove sandboxes.",
    "tool": "List and call sandbox tools.",
    "task": "Validate, list and create task files.",
    "llm": "Test models and inspect recorded requests.",
    "image": "Build, list and remove images.",
    "kind": "List sandbox kinds.",
    "pool": "Manage pools of pre-started sandboxes.",
    "key": "Create, list and revoke API keys.",
    "config": "Show and check the configuration.",
    "events": "Show events of sandboxes, snapshots, pools and runs.",
    "version": "Show version information.",
}
