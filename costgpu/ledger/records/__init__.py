"""What the ledger holds besides runs: budgets, bills, measured speeds, machines without a run."""
