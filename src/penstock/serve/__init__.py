"""Calls from other processes of the same machine: a Unix socket in the state directory."""
