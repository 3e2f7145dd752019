"""Test doubles of the ports and an in-process Messages server, for our tests and for yours."""
