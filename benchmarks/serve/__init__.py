"""How fast state is served."""
