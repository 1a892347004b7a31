"""What only a real account can tell: one small machine for each place, measured from its create call to its end."""
