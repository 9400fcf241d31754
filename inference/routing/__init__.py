"""Routing: which deployment answers. A pure function of the request, the snapshot and the workers' state."""

from inference.routing.deciding import Decision, decide, find_candidates, reachable_by_rules

__all__ = ["Decision", "decide", "find_candidates", "reachable_by_rules"]
