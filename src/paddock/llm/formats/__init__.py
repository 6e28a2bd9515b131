"""The wire formats of model APIs, each read into and written from the neutral form."""
