"""What is known of a run: its states, journal, lock, outcome, and who watches."""
