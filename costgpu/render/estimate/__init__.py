"""What an estimate says: its report, its first screen and its JSON document."""
