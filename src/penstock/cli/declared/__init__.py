"""What `penstock apply` reads, where it makes changes, where secrets of new keys go, and how a plan is printed."""
