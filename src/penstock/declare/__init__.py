"""What the user writes: tables, events, transactions, checks -> Program."""
