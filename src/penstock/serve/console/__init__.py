"""The console: pages at the server's root, which ask /v1 as any client does."""
