"""Which files and packages a measured script used: seen by the probe from inside, and by the system from outside."""
