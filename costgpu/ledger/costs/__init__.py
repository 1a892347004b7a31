"""Questions about closed runs: history, totals, accuracy, and exports. All raise `LedgerError` as `Ledger` does."""
