"""The model APIs on the main port, and routes for models, recorded exchanges and usage."""
