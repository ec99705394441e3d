"""What training has in common on both back ends: batches of an execution, callbacks, checks before a run."""
