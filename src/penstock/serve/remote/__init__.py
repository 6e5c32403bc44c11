"""The client of a server: what `ps.connect(url)` gives."""
