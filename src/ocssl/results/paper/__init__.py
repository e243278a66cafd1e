"""Every table and figure of the paper as a plan: the runs that it needs, and what is drawn from them."""

from ocssl.results.paper.plan import Plan, Planned, own_plans, plan_names, read_plan, runs_of
from ocssl.results.paper.scale import Scale, read_scale

__all__ = ["Plan", "Planned", "Scale", "own_plans", "plan_names", "read_plan", "read_scale", "runs_of"]
