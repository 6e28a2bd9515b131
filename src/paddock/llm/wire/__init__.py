"""A small HTTP/1.1 server and client for relaying bytes."""
