"""What the ledger holds besides runs: budgets, estimates, bills, measured speeds, machines without a run."""
