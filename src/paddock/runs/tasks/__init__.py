"""Task files: loading, validation, templates and generated documentation."""
