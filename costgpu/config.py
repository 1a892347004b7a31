"""Settings: flag, then COSTGPU_* variables, then the project's file, then the user's file, then the default."""
