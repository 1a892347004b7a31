"""Results as HTML pages that need nothing else."""
