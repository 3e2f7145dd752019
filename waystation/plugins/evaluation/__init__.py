"""Evaluation: questions with what is known of their answers, scores, and a page of them."""
