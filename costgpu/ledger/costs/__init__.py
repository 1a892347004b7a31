"""What runs and machines have cost: charges, periods, totals, exports. All raise `LedgerError` as `Ledger` does."""
