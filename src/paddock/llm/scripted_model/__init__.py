"""The scripted model: answers requests from a script file instead of a real model."""
