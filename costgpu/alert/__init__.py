"""Tells people about budgets, and lets cron look after them. May import `ledger`, `config`, `units` and `errors`."""
