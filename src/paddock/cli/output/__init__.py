"""Output of all commands: tables, JSON, formatted values, errors, and atomic files."""
