"""What was spent: budgets, bills and the report."""
