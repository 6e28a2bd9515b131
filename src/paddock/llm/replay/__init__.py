"""Recording files, and matching of requests to recorded exchanges."""
