"""Questions about closed runs: history, totals, accuracy, and exports for other programs."""
