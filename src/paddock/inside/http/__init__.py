"""HTTP/1.1 over sockets: requests, replies, WebSockets, multipart forms and tunnels."""
