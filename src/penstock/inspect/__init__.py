"""What happened in a state directory, batch by batch and event by event, told as plain values."""
