"""What would make a job cheaper, with the saving that the model predicts. Pure."""
