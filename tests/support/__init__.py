"""Helpers of the tests: servers, fake providers, sandboxes and browsers."""
