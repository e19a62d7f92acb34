"""Usage: the accounts of pools and loans, through restarts, and an invoice that a stranger rebuilds from the topics."""
