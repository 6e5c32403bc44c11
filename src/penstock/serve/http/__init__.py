"""The HTTP server of a state directory: JSON over a replica, at one version an answer."""
