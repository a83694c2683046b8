"""What a call is: its data and those of its attempts, the control of a running one, its failures, and its entry."""
