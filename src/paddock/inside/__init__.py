"""The daemon in every box: runs commands, moves files, opens terminals for whoever holds the box's token."""

VERSION = "0.1.0"
