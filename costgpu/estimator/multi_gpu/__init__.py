"""Trainings on several GPUs: seconds of a step, memory of each GPU, and how far that can be trusted. Pure."""
