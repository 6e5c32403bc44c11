"""A state directory read without its app."""
