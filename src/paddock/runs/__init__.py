"""Tasks and runs: task files, agent presets, run execution and results."""
