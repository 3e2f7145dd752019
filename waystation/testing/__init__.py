"""Doubles of the ports and a Messages server in process, for our tests and for yours."""
