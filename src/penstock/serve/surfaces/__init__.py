"""APIs that Penstock offers, one file each: a path and the dialect spoken there."""
