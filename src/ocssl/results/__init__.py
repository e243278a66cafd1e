"""The report: one HTML file on one or more runs that works offline, from disk; its figures and tables for papers."""

from ocssl.results.page import write_report

__all__ = ["write_report"]
