"""Code shared by all routes: authentication, limits, error answers, streams and body models."""
