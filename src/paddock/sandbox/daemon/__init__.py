"""Client of the daemon in a sandbox: HTTP, tool and display streams, and the daemon's zipapp."""
