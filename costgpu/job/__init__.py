"""One run from intent to confirmed termination. May import `providers`, `ledger` and what is below them."""
