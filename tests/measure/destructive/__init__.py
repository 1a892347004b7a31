"""Scripts written to win against what protects the user's files, by class, and the tree that they must not change."""
