"""Every table and figure of the paper as a plan: the runs that it needs, and what is drawn from them."""

from ocssl.results.paper.plan import Plan, Planned, Scale, own_plans, plan_names, read_plan, read_scale, runs_of

__all__ = ["Plan", "Planned", "Scale", "own_plans", "plan_names", "read_plan", "read_scale", "runs_of"]
