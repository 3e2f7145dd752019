"""Evaluation of reports: question sets with known answers, scores, and an HTML page of results."""
