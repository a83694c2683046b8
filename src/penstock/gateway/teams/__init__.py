"""Teams of keys: organisations, teams and projects, with limits at every level."""
