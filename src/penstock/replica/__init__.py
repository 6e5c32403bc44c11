"""A state directory, read beside its writer."""
