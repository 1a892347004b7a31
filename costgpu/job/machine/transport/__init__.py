"""Ways to a machine: `ssh` to a rented one, `local` to a folder of this one. Import the module that is needed."""
