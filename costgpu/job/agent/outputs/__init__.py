"""What a job leaves: found in the working folder, made ready, uploaded."""
