"""The daemon in every sandbox: serves commands, files, terminals, ports and tools over HTTP."""

VERSION = "0.1.0"
