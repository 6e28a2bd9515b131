"""Screen recordings: capture, file format and video export."""
