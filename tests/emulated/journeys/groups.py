"""What journeys of jobs on two machines share in any cloud."""

TWO = ("--nodes", "2")
BARE = (*TWO, "--launcher", "none")
