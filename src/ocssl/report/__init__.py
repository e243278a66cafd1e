"""The report: one HTML file on one or more runs that works offline, from disk."""

from ocssl.report.html import write_report

__all__ = ["write_report"]
