"""What the machine is doing: idleness, statistics, spot notices."""
