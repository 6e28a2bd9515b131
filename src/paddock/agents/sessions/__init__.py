"""Chat sessions as the API uses them: create, message, fork, export, import, delete."""
