"""Runs processes: commands, bash sessions, code contexts and terminals, with their output."""
